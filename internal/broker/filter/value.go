// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"github.com/cockroachdb/apd/v3"
)

// Kind is the type of a [Value].
type Kind uint8

// The kinds. Unknown is the value of a user property that does not exist, Null
// that of one that is null.
const (
	Unknown Kind = iota
	Null
	Bool
	Int  // 64 bits with sign
	Uint // above the range of Int
	Decimal
	Float // 64 bits
	String
	GUID
	Time     // with a resolution of 100 ns
	Duration // the same
	Opaque   // of a type that no operator takes
)

var kindNames = [...]string{"unknown", "null", "boolean", "integer", "integer", "decimal", "number", "string", "GUID", "date", "time span", "opaque value"}

func (k Kind) String() string { return kindNames[k] }

// A Value is what an expression comes to. The zero Value is unknown.
type Value struct {
	kind Kind
	n    uint64 // bool, number, ticks of 100 ns, first half of a GUID
	m    uint64 // second half of a GUID
	s    string
	d    *apd.Decimal
	// origin is what the value was made from, for whom a kind is too wide. What is
	// computed has none.
	origin any
}

// From is v with its origin.
func (v Value) From(origin any) Value {
	v.origin = origin
	return v
}

// Origin returns what v was made from, nil where that is unknown.
func (v Value) Origin() any { return v.origin }

const tick = 100 * time.Nanosecond

// Forever is the duration of what has no end, that of a time to live that was
// not set.
var Forever = Value{kind: Duration, n: math.MaxInt64}

// NullValue is null.
func NullValue() Value { return Value{kind: Null} }

// OpaqueValue is a value of a type that no expression can read.
func OpaqueValue() Value { return Value{kind: Opaque} }

// IntValue is a signed integer.
func IntValue(v int64) Value { return Value{kind: Int, n: uint64(v)} }

// FloatValue is a number with a fraction.
func FloatValue(v float64) Value { return Value{kind: Float, n: math.Float64bits(v)} }

// StringValue is a string.
func StringValue(v string) Value { return Value{kind: String, s: v} }

// BoolValue is a boolean.
func BoolValue(v bool) Value {
	if v {
		return Value{kind: Bool, n: 1}
	}
	return Value{kind: Bool}
}

// UintValue is an unsigned integer, of the kind Int where that holds it.
func UintValue(v uint64) Value {
	if v <= math.MaxInt64 {
		return IntValue(int64(v))
	}
	return Value{kind: Uint, n: v}
}

// GUIDValue takes a GUID in the byte order of RFC 4122.
func GUIDValue(id [16]byte) Value {
	v := Value{kind: GUID}
	for i := range 8 {
		v.n = v.n<<8 | uint64(id[i])
		v.m = v.m<<8 | uint64(id[8+i])
	}
	return v
}

// TimeValue cuts t to 100 ns. The zero time is the zero time of .NET, too.
func TimeValue(t time.Time) Value {
	return Value{kind: Time, n: uint64(t.Unix()*int64(time.Second/tick) + int64(t.Nanosecond())/int64(tick))}
}

// DurationValue cuts d to 100 ns.
func DurationValue(d time.Duration) Value { return TicksValue(int64(d / tick)) }

// TicksValue is a duration in units of 100 ns.
func TicksValue(n int64) Value { return Value{kind: Duration, n: uint64(n)} }

// Kind returns the type of v. The following methods return the value of that type; on another kind
// the result means nothing.
func (v Value) Kind() Kind { return v.kind }

// Bool returns a boolean.
func (v Value) Bool() bool { return v.n != 0 }

// Int returns a signed integer.
func (v Value) Int() int64 { return int64(v.n) }

// Uint returns an unsigned integer.
func (v Value) Uint() uint64 { return v.n }

// Float returns a number with a fraction.
func (v Value) Float() float64 { return math.Float64frombits(v.n) }

// Text returns a string.
func (v Value) Text() string { return v.s }

// GUID returns a GUID in the byte order of RFC 4122.
func (v Value) GUID() (id [16]byte) {
	n, m := v.n, v.m
	for i := 7; i >= 0; i-- {
		id[i], id[8+i] = byte(n), byte(m)
		n, m = n>>8, m>>8
	}
	return id
}

// Time returns an instant, in UTC.
func (v Value) Time() time.Time {
	const perSecond = int64(time.Second / tick)
	n := int64(v.n)
	return time.Unix(n/perSecond, n%perSecond*int64(tick)).UTC()
}

// Duration returns the duration, the longest that Go has where it is longer.
func (v Value) Duration() time.Duration {
	const most = int64(math.MaxInt64 / tick)
	return time.Duration(min(max(int64(v.n), -most), most)) * tick
}

// Ticks returns the duration, or the time since 1970, in units of 100 ns.
func (v Value) Ticks() int64 { return int64(v.n) }

// Equal reports whether a = b is true.
func Equal(a, b Value) bool { return equal.compare(a, b) == isTrue }

// absent reports whether operators have nothing to work on.
func (v Value) absent() bool { return v.kind <= Null }

func (v Value) numeric() bool { return v.kind >= Int && v.kind <= Float }

// float is a numeric value as a float.
func (v Value) float() float64 {
	switch v.kind {
	case Int:
		return float64(int64(v.n))
	case Uint:
		return float64(v.n)
	case Decimal:
		f, _ := v.d.Float64() // an infinity where it is too large
		return f
	}
	return v.Float()
}

// timeFormat is the round-trip format of .NET.
const timeFormat = "2006-01-02T15:04:05.9999999Z07:00"

// format writes v as C# would, and says whether there is such a form.
func (v Value) format() (string, bool) {
	switch v.kind {
	case Bool:
		if v.Bool() {
			return "True", true
		}
		return "False", true
	case Int:
		return strconv.FormatInt(v.Int(), 10), true
	case Uint:
		return strconv.FormatUint(v.n, 10), true
	case Decimal:
		return v.d.Text('f'), true
	case Float:
		return strconv.FormatFloat(v.Float(), 'G', -1, 64), true
	case String:
		return v.s, true
	case GUID:
		id := v.GUID()
		h := hex.EncodeToString(id[:])
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], true
	case Time:
		return v.Time().Format(timeFormat), true
	case Duration:
		return formatSpan(v.Int()), true
	}
	return "", false
}
