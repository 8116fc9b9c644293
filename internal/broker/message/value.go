// SPDX-License-Identifier: Apache-2.0

package message

import (
	"math"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/filter"
)

// Types of .NET that AMQP does not have. They travel as described values.
const (
	TypeTimeSpan             = amqp.TypeTimeSpan
	TypeOffset               = amqp.TypeDateTimeOffset
	TypeURI      amqp.Symbol = "com.microsoft:uri" // string
)

// EpochTicks is the Unix epoch in ticks since the year 1.
const EpochTicks = amqp.EpochTicks

// FilterValue returns a value of a message, or of a filter's parameter, as
// filters see it.
func FilterValue(v any) filter.Value {
	switch v := v.(type) {
	case amqp.Symbol:
		return filter.StringValue(string(v))
	case amqp.Char:
		return filter.StringValue(string(rune(v)))
	case amqp.UUID:
		return filter.GUIDValue(v)
	case amqp.Timestamp:
		return filter.TimeValue(v.Time())
	case amqp.Described:
		return describedValue(v)
	}
	return filter.ValueOf(v)
}

func describedValue(v amqp.Described) filter.Value {
	name, _ := v.Descriptor.(amqp.Symbol)
	switch ticks, _ := v.Value.(int64); name {
	case TypeTimeSpan:
		return filter.TicksValue(ticks)
	case TypeOffset:
		const perSecond = int64(time.Second / 100)
		since := ticks - EpochTicks
		return filter.TimeValue(time.Unix(since/perSecond, since%perSecond*100))
	case TypeURI:
		if s, ok := v.Value.(string); ok {
			return filter.StringValue(s)
		}
	}
	return filter.OpaqueValue()
}

// WireValue returns v as a message carries it. Where the property had a value of
// the same kind before, was, its type is kept.
func WireValue(v filter.Value, was any) any {
	switch v.Kind() {
	case filter.Bool:
		return v.Bool()
	case filter.Int:
		return wireInteger(v.Int(), was)
	case filter.Uint:
		return v.Uint()
	case filter.Float:
		if _, ok := was.(float32); ok {
			return float32(v.Float())
		}
		return v.Float()
	case filter.String:
		return v.Text()
	case filter.GUID:
		return amqp.UUID(v.GUID())
	case filter.Time:
		return amqp.TimestampOf(v.Time())
	case filter.Duration:
		return amqp.Described{Descriptor: TypeTimeSpan, Value: v.Ticks()}
	}
	return nil
}

// wireInteger keeps the type of was where n fits, and is a long else.
func wireInteger(n int64, was any) any {
	switch was.(type) {
	case int8:
		if int64(int8(n)) == n {
			return int8(n)
		}
	case int16:
		if int64(int16(n)) == n {
			return int16(n)
		}
	case int32:
		if int64(int32(n)) == n {
			return int32(n)
		}
	case uint8:
		if int64(uint8(n)) == n {
			return uint8(n)
		}
	case uint16:
		if int64(uint16(n)) == n {
			return uint16(n)
		}
	case uint32:
		if n >= 0 && n <= math.MaxUint32 {
			return uint32(n)
		}
	case uint64:
		if n >= 0 {
			return uint64(n)
		}
	}
	return n
}
