// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"math"
	"testing"
	"time"
)

func TestValuesComeBackAsTheyWere(t *testing.T) {
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 999999900, time.UTC), sent} {
		if got := TimeValue(at).Time(); !got.Equal(at) {
			t.Errorf("TimeValue(%v).Time() = %v", at, got)
		}
	}
	if got := GUIDValue(id).GUID(); got != id {
		t.Errorf("GUID() = %v, want %v", got, id)
	}
	if got := DurationValue(-time.Minute).Duration(); got != -time.Minute {
		t.Errorf("Duration() = %v, want -1m", got)
	}
	if got, longest := Forever.Duration(), time.Duration(math.MaxInt64); got < longest-tick || got < 0 {
		t.Errorf("Forever.Duration() = %v, want the longest there is", got)
	}
}

func TestSpansAreReadAsTheyAreWritten(t *testing.T) {
	for ticks, want := range map[int64]string{
		0: "00:00:00", 1: "00:00:00.0000001", -1: "-00:00:00.0000001", int64(ticksPerDay): "1.00:00:00",
		math.MaxInt64: "10675199.02:48:05.4775807",
	} {
		if got := formatSpan(ticks); got != want {
			t.Errorf("formatSpan(%d) = %s, want %s", ticks, got, want)
		}
		if got, ok := parseSpan(want); !ok || got.Int() != ticks {
			t.Errorf("parseSpan(%s) = %d, %v; want %d", want, got.Int(), ok, ticks)
		}
	}
	for _, s := range []string{"", "1", "1:2", "24:00:00", "00:60:00", "00:00:60", "x.00:00:00", "00:00:00.12345678", "10675200.00:00:00",
		"16777215.00:00:00", "1.-1:00:00", "00:00:00.x", "--00:00:00"} {
		if v, ok := parseSpan(s); ok {
			t.Errorf("parseSpan(%s) = %d, want none", s, v.Int())
		}
	}
}

func same(a, b Value) bool {
	if a.kind == Decimal && b.kind == Decimal {
		return a.d.String() == b.d.String()
	}
	return a == b
}

func TestConversionsKeepWhatTheyCan(t *testing.T) {
	guid, _ := GUIDValue(id).format()
	for _, c := range []struct {
		from Value
		to   Kind
		want Value
		ok   bool
	}{
		{IntValue(5), String, StringValue("5"), true},
		{UintValue(math.MaxUint64), String, StringValue("18446744073709551615"), true},
		{StringValue("18446744073709551615"), Int, UintValue(math.MaxUint64), true},
		{UintValue(math.MaxUint64), Int, UintValue(math.MaxUint64), true},
		{UintValue(math.MaxUint64), Float, FloatValue(math.MaxUint64), true},
		{StringValue(" 5 "), Float, FloatValue(5), true},
		{FloatValue(1e300), Int, Value{}, false},
		{FloatValue(math.NaN()), Int, Value{}, false},
		{FloatValue(-2.5), Int, IntValue(-2), true},
		{BoolValue(true), String, StringValue("True"), true},
		{BoolValue(true), Int, Value{}, false},
		{StringValue("TRUE"), Bool, BoolValue(true), true},
		{StringValue("1"), Bool, Value{}, false},
		{StringValue(guid), GUID, GUIDValue(id), true},
		{StringValue("zz020304-0506-0708-090a-0b0c0d0e0f10"), GUID, Value{}, false},
		{StringValue("0102"), GUID, Value{}, false},
		{StringValue("2026-03-01 12:00:00"), Time, TimeValue(sent), true},
		{StringValue("tomorrow"), Time, Value{}, false},
		{NullValue(), Time, NullValue(), true},
		{OpaqueValue(), String, StringValue(""), false},
		{StringValue("x"), Opaque, Value{}, false},
		{IntValue(5), Decimal, number("5"), true},
		{UintValue(math.MaxUint64), Decimal, number("18446744073709551615"), true},
		{FloatValue(0.1), Decimal, number("0.1"), true},
		{FloatValue(math.NaN()), Decimal, Value{}, false},
		{FloatValue(1e300), Decimal, Value{}, false},
		{StringValue(" 12.50 "), Decimal, number("12.50"), true},
		{StringValue("79228162514264337593543950335"), Decimal, number("79228162514264337593543950335"), true},
		{StringValue("79228162514264337593543950336"), Decimal, Value{}, false},
		{StringValue("NaN"), Decimal, Value{}, false},
		{StringValue("1e3"), Decimal, number("1000"), true},
		{FloatValue(2000), Decimal, number("2000"), true},
		{number("12.50"), String, StringValue("12.50"), true},
		{number("12.5"), Int, IntValue(12), true},
		{number("18446744073709551615"), Uint, UintValue(math.MaxUint64), true},
		{number("1e20"), Int, Value{}, false},
		{number("0.1"), Float, FloatValue(0.1), true},
	} {
		got, ok := c.from.Convert(c.to)
		if ok != c.ok || ok && !same(got, c.want) {
			t.Errorf("%s %v to %s = %v, %v; want %v, %v", c.from.Kind(), c.from, c.to, got, ok, c.want, c.ok)
		}
	}
}
