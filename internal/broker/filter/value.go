// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
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

// Convert returns v as a value of that kind, where there is a way. Numbers convert among one
// another while nothing but a fraction is lost, anything converts to a string, and a string to the
// value that it spells.
func (v Value) Convert(to Kind) (Value, bool) {
	switch {
	case v.kind == to, v.kind == Null:
		return v, true
	case to == String:
		s, ok := v.format()
		return StringValue(s), ok
	case v.kind == String:
		return parseAs(strings.TrimSpace(v.s), to)
	case to == Float && v.numeric():
		return FloatValue(v.float()), true
	case to == Decimal && v.kind == Float:
		return decimalOfFloat(v.Float())
	case to == Decimal && v.numeric():
		return DecimalValue(v.decimal()), true
	case (to == Int || to == Uint) && v.kind == Decimal:
		whole := new(apd.Decimal)
		if _, err := decimals.RoundToIntegralValue(whole, v.d); err == nil {
			return parseAs(whole.Text('f'), to)
		}
	case (to == Int || to == Uint) && v.kind == Float:
		f := math.RoundToEven(v.Float()) // as System.Convert does
		if f >= math.MinInt64 && f < math.MaxInt64 {
			return IntValue(int64(f)), true
		}
	case (to == Int || to == Uint) && (v.kind == Int || v.kind == Uint):
		return v, true
	}
	return Value{}, false
}

func parseAs(s string, to Kind) (Value, bool) {
	switch to {
	case Bool:
		if strings.EqualFold(s, "true") {
			return BoolValue(true), true
		}
		return BoolValue(false), strings.EqualFold(s, "false")
	case Int, Uint:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return IntValue(n), true
		}
		n, err := strconv.ParseUint(s, 10, 64)
		return UintValue(n), err == nil
	case Decimal:
		return parseDecimal(s)
	case Float:
		f, err := strconv.ParseFloat(s, 64)
		return FloatValue(f), err == nil
	case GUID:
		return parseGUID(s)
	case Time:
		for _, format := range [...]string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
			if t, err := time.Parse(format, s); err == nil {
				return TimeValue(t), true
			}
		}
	case Duration:
		return parseSpan(s)
	}
	return Value{}, false
}

func parseGUID(s string) (Value, bool) {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	var id [16]byte
	if len(s) != 32 {
		return Value{}, false
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return Value{}, false
	}
	return GUIDValue(id), true
}

const (
	ticksPerSecond = uint64(time.Second / tick)
	ticksPerDay    = 24 * 60 * 60 * ticksPerSecond
)

// formatSpan writes ticks as System.TimeSpan does: [-][d.]hh:mm:ss[.fffffff].
func formatSpan(ticks int64) string {
	var b strings.Builder
	n := uint64(ticks)
	if ticks < 0 {
		b.WriteByte('-')
		n = -n
	}
	if days := n / ticksPerDay; days > 0 {
		fmt.Fprintf(&b, "%d.", days)
	}
	n %= ticksPerDay
	seconds := n / ticksPerSecond
	fmt.Fprintf(&b, "%02d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	if rest := n % ticksPerSecond; rest > 0 {
		fmt.Fprintf(&b, ".%07d", rest)
	}
	return b.String()
}

// parseSpan reads what formatSpan writes.
func parseSpan(s string) (Value, bool) {
	rest, negative := strings.CutPrefix(s, "-")
	clock, days := rest, uint64(0)
	if before, after, found := strings.Cut(rest, "."); found && !strings.Contains(before, ":") {
		n, err := strconv.ParseUint(before, 10, 24)
		if err != nil {
			return Value{}, false
		}
		days, clock = n, after
	}
	parts := strings.Split(clock, ":")
	if len(parts) != 3 {
		return Value{}, false
	}
	seconds, fraction, _ := strings.Cut(parts[2], ".")
	if len(fraction) > 7 {
		return Value{}, false
	}
	total := days * ticksPerDay
	for i, f := range [...]struct {
		text        string
		below, each uint64
	}{{parts[0], 24, 3600 * ticksPerSecond}, {parts[1], 60, 60 * ticksPerSecond}, {seconds, 60, ticksPerSecond},
		{(fraction + "0000000")[:7], ticksPerSecond, 1}} {
		n, err := strconv.ParseUint(f.text, 10, 32)
		if err != nil || n >= f.below || i == 3 && n > 0 && fraction == "" {
			return Value{}, false
		}
		total += n * f.each
	}
	switch {
	case total > math.MaxInt64:
		return Value{}, false
	case negative:
		total = -total
	}
	return Value{kind: Duration, n: total}, true
}

// decimals and shorter are the arithmetic of System.Decimal: 96 bits, which are 29 digits or 28, up
// to 28 of them behind the point. Halves are rounded to even, and there is no infinity.
var decimals, shorter = decimalContext(29), decimalContext(28)

func decimalContext(digits int32) apd.Context {
	return apd.Context{
		Precision: uint32(digits), MaxExponent: digits - 1, MinExponent: digits - 29, Rounding: apd.RoundHalfEven,
		Traps: apd.DefaultTraps &^ (apd.Subnormal | apd.Underflow),
	}
}

// DecimalValue is a finite decimal number of any size. d must not change any more.
func DecimalValue(d *apd.Decimal) Value { return Value{kind: Decimal, d: d} }

// Decimal returns the number. It must not be changed.
func (v Value) Decimal() *apd.Decimal { return v.d }

// decimal is a numeric value but a float as a decimal.
func (v Value) decimal() *apd.Decimal {
	switch v.kind {
	case Decimal:
		return v.d
	case Uint:
		d := new(apd.Decimal)
		d.Coeff.SetUint64(v.n)
		return d
	}
	return apd.New(v.Int(), 0)
}

func parseDecimal(s string) (Value, bool) {
	d, _, err := decimals.NewFromString(s)
	if err != nil || d.Form != apd.Finite {
		return Value{}, false
	}
	return DecimalValue(d), fitDecimal(d) == nil
}

// decimalOfFloat keeps 15 digits, as the conversion of .NET does.
func decimalOfFloat(f float64) (Value, bool) {
	v, ok := parseDecimal(strconv.FormatFloat(f, 'E', 14, 64))
	if ok {
		v.d.Reduce(v.d)
		ok = fitDecimal(v.d) == nil
	}
	return v, ok
}

// fitDecimal rounds to 96 bits, and writes zeros before the point out: a
// System.Decimal has no exponent above 0.
func fitDecimal(d *apd.Decimal) error {
	var err error
	if d.Coeff.BitLen() > 96 {
		_, err = shorter.Round(d, d)
	}
	if err == nil && d.Exponent > 0 {
		_, err = decimals.Quantize(d, d, 0)
	}
	return err
}

func calculateDecimals(op byte, a, b *apd.Decimal) (Value, error) {
	calculate := map[byte]func(d, x, y *apd.Decimal) (apd.Condition, error){
		'+': decimals.Add, '-': decimals.Sub, '*': decimals.Mul, '/': decimals.Quo, '%': decimals.Rem,
	}[op]
	d := new(apd.Decimal)
	_, err := calculate(d, a, b)
	if op == '/' {
		d.Reduce(d) // which comes with all its digits
	}
	if err = cmp.Or(err, fitDecimal(d)); err != nil {
		return Value{}, evalErrorf("%s %c %s: %v", a, op, b, err)
	}
	return DecimalValue(d), nil
}
