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
	} {
		got, ok := c.from.Convert(c.to)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s %v to %s = %v, %v; want %v, %v", c.from.Kind(), c.from, c.to, got, ok, c.want, c.ok)
		}
	}
}

func TestParametersHaveTheirTypes(t *testing.T) {
	for _, c := range []struct {
		from any
		want Value
	}{
		{nil, NullValue()}, {true, BoolValue(true)}, {int(1), IntValue(1)}, {int8(-1), IntValue(-1)}, {int16(1), IntValue(1)},
		{int32(1), IntValue(1)}, {int64(1), IntValue(1)}, {uint(1), IntValue(1)}, {uint8(1), IntValue(1)}, {uint16(1), IntValue(1)},
		{uint32(1), IntValue(1)}, {uint64(math.MaxUint64), UintValue(math.MaxUint64)}, {float32(0.5), FloatValue(0.5)}, {1.5, FloatValue(1.5)},
		{"x", StringValue("x")}, {id, GUIDValue(id)}, {sent, TimeValue(sent)}, {time.Second, DurationValue(time.Second)}, {[]byte("x"), OpaqueValue()},
	} {
		if got := ValueOf(c.from); got != c.want {
			t.Errorf("ValueOf(%T %v) = %v, want %v", c.from, c.from, got, c.want)
		}
	}
}
