// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/hex"
	"math"
	"time"
)

// The Go types of AMQP values. An any that holds an AMQP value holds one of
//
//	nil bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float32 float64
//	Decimal32 Decimal64 Decimal128 Char Timestamp UUID []byte string Symbol
//	List Map Array Described
//
// and, for encoding only, Raw.
type (
	// Symbol is an ASCII string from a constrained domain: a descriptor, a condition, a capability.
	Symbol string

	// UUID is in the byte order of RFC 4122, as on the wire.
	UUID [16]byte

	// Char is one Unicode scalar value.
	Char rune

	// Timestamp is in milliseconds since the Unix epoch.
	Timestamp int64

	// Decimal32 is IEEE 754-2008 decimal32, in the binary integer encoding, big-endian.
	Decimal32 [4]byte
	// Decimal64 is IEEE 754-2008 decimal64, in the binary integer encoding, big-endian.
	Decimal64 [8]byte
	// Decimal128 is IEEE 754-2008 decimal128, in the binary integer encoding, big-endian.
	Decimal128 [16]byte

	// Described is a value with a descriptor, which is a uint64 or a Symbol in every known use.
	Described struct{ Descriptor, Value any }

	// List is an ordered sequence of values of any types.
	List []any

	// Map keeps the order of its pairs, and keys of any type, lists included. It is not a Go map,
	// because a peer may send keys that cannot be hashed.
	Map []Pair

	// Pair is one entry of a Map.
	Pair struct{ Key, Value any }

	// Array holds elements of one type. AppendValue refuses an Array of several.
	Array []any

	// Raw is one complete encoded value, constructor included. It is written verbatim.
	// A nil Raw stands for an absent value and is written as null.
	Raw []byte
)

// Get returns the value of the first pair whose key is the string or symbol key.
func (m Map) Get(key string) (any, bool) {
	for i := range m {
		switch k := m[i].Key.(type) {
		case string:
			if k == key {
				return m[i].Value, true
			}
		case Symbol:
			if string(k) == key {
				return m[i].Value, true
			}
		}
	}
	return nil, false
}

// Time returns t in UTC.
func (t Timestamp) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

// TimestampOf returns t cut down to the millisecond.
func TimestampOf(t time.Time) Timestamp { return Timestamp(t.UnixMilli()) }

// String returns u in its canonical form, 8-4-4-4-12.
func (u UUID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Types that the SDKs for .NET and Java send as described values, since AMQP does not have them.
const (
	TypeTimeSpan       Symbol = "com.microsoft:timespan"        // long, ticks of 100 ns
	TypeDateTimeOffset Symbol = "com.microsoft:datetime-offset" // long, ticks since the year 1
)

// EpochTicks is the Unix epoch in ticks since the year 1.
const EpochTicks = 621_355_968_000_000_000

const tick = 100 * time.Nanosecond

// TimeOrSpan returns v as a time.Time, in UTC, if it is a timestamp or a date-time-offset, as a
// time.Duration if it is a timespan, and otherwise as it is. A timespan that is longer than the
// longest time.Duration is that one.
func TimeOrSpan(v any) any {
	switch v := v.(type) {
	case Timestamp:
		return v.Time()
	case Described:
		ticks, isLong := v.Value.(int64)
		switch {
		case isLong && v.Descriptor == TypeTimeSpan:
			most := int64(math.MaxInt64 / tick)
			return time.Duration(min(max(ticks, -most), most)) * tick
		case isLong && v.Descriptor == TypeDateTimeOffset:
			const ticksPerSecond = int64(time.Second / tick)
			since := ticks - EpochTicks
			return time.Unix(since/ticksPerSecond, since%ticksPerSecond*int64(tick)).UTC()
		}
	}
	return v
}
