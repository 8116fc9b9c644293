// SPDX-License-Identifier: Apache-2.0

package message

import (
	"math"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/broker/filter"
)

// TypeURI is a type of .NET that AMQP does not have. It travels as a described string.
const TypeURI amqp.Symbol = "com.microsoft:uri"

// FilterValue returns a value of a message, or of a rule, as filters see it. A
// copy that an action makes of it has the type of v.
func FilterValue(v any) filter.Value { return filterValue(v).From(v) }

func filterValue(v any) filter.Value {
	switch v := v.(type) {
	case nil:
		return filter.NullValue()
	case bool:
		return filter.BoolValue(v)
	case int:
		return filter.IntValue(int64(v))
	case int8:
		return filter.IntValue(int64(v))
	case int16:
		return filter.IntValue(int64(v))
	case int32:
		return filter.IntValue(int64(v))
	case int64:
		return filter.IntValue(v)
	case uint8:
		return filter.IntValue(int64(v))
	case uint16:
		return filter.IntValue(int64(v))
	case uint32:
		return filter.IntValue(int64(v))
	case uint64:
		return filter.UintValue(v)
	case float32:
		return filter.FloatValue(float64(v))
	case float64:
		return filter.FloatValue(v)
	case amqp.Decimal32, amqp.Decimal64, amqp.Decimal128:
		if n := decimalNumber(v); n != nil {
			return filter.DecimalValue(n)
		}
	case string:
		return filter.StringValue(v)
	case amqp.Symbol:
		return filter.StringValue(string(v))
	case amqp.Char:
		return filter.StringValue(string(rune(v)))
	case amqp.UUID:
		return filter.GUIDValue(v)
	case amqp.Timestamp:
		return filter.TimeValue(v.Time())
	case time.Time:
		return filter.TimeValue(v)
	case time.Duration:
		return filter.DurationValue(v)
	case amqp.Described:
		return describedValue(v)
	}
	return filter.OpaqueValue()
}

func describedValue(v amqp.Described) filter.Value {
	name, _ := v.Descriptor.(amqp.Symbol)
	switch ticks, _ := v.Value.(int64); name {
	case amqp.TypeTimeSpan:
		return filter.TicksValue(ticks)
	case amqp.TypeDateTimeOffset:
		const perSecond = int64(time.Second / 100)
		since := ticks - amqp.EpochTicks
		return filter.TimeValue(time.Unix(since/perSecond, since%perSecond*100))
	case TypeURI:
		if s, ok := v.Value.(string); ok {
			return filter.StringValue(s)
		}
	}
	return filter.OpaqueValue()
}

// WireValue returns v as a message carries it: with the type of what the property
// was before, where that is of the same kind; else with that of its origin.
func WireValue(v filter.Value, was any) any {
	origin := v.Origin()
	if was == nil || filterValue(was).Kind() != v.Kind() {
		was = origin
	}
	switch v.Kind() {
	case filter.Bool:
		return v.Bool()
	case filter.Int:
		return wireInteger(v.Int(), was)
	case filter.Uint:
		return v.Uint()
	case filter.Decimal:
		return wireDecimal(v.Decimal(), was)
	case filter.Float:
		if _, ok := was.(float32); ok {
			return float32(v.Float())
		}
		return v.Float()
	case filter.String:
		return wireString(v.Text(), was)
	case filter.GUID:
		return amqp.UUID(v.GUID())
	case filter.Time:
		if d, ok := was.(amqp.Described); ok {
			return amqp.Described{Descriptor: d.Descriptor, Value: v.Ticks() + amqp.EpochTicks}
		}
		return amqp.TimestampOf(v.Time())
	case filter.Duration:
		return amqp.Described{Descriptor: amqp.TypeTimeSpan, Value: v.Ticks()}
	}
	return origin
}

// wireString keeps the type of was where s fits.
func wireString(s string, was any) any {
	switch was := was.(type) {
	case amqp.Symbol:
		return amqp.Symbol(s)
	case amqp.Char:
		if c, size := utf8.DecodeRuneInString(s); size == len(s) && size > 0 {
			return amqp.Char(c)
		}
	case amqp.Described:
		return amqp.Described{Descriptor: was.Descriptor, Value: s}
	}
	return s
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
