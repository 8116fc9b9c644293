// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/hex"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker/filter"
)

// bytesOf reads a decimal of the wire.
func bytesOf[T ~[4]byte | ~[8]byte | ~[16]byte](t *testing.T, text string) (d T) {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	switch p := any(&d).(type) {
	case *amqp.Decimal32:
		copy(p[:], b)
	case *amqp.Decimal64:
		copy(p[:], b)
	case *amqp.Decimal128:
		copy(p[:], b)
	}
	return d
}

func TestDecimalsOfAllWidthsAreNumbers(t *testing.T) {
	for _, c := range []struct {
		wire any
		want string // "" where it is no number
	}{
		{bytesOf[amqp.Decimal128](t, "0c3e000000000000000000000000007d"), "12.5"},  // as Azure.Messaging.ServiceBus sends it
		{bytesOf[amqp.Decimal128](t, "8c3e000000000000000000000000007d"), "-12.5"}, //
		{bytesOf[amqp.Decimal128](t, "303e000000000000000000000000007d"), "12.5"},  // as the standard has it
		{bytesOf[amqp.Decimal128](t, "b03e000000000000000000000000007d"), "-12.5"}, //
		{bytesOf[amqp.Decimal128](t, "30400000000000000000000000000000"), "0"},
		{bytesOf[amqp.Decimal128](t, "0c4000000000ffffffffffffffffffff"), "1208925819614629174706175"},
		{bytesOf[amqp.Decimal128](t, "3041ed09bead87c0378d8e63ffffffff"), "9999999999999999999999999999999999"},
		{bytesOf[amqp.Decimal128](t, "30420000000000000000000000000001"), "10"},
		{bytesOf[amqp.Decimal128](t, "60000000000000000000000000000001"), "0"}, // not canonical
		{bytesOf[amqp.Decimal128](t, "78000000000000000000000000000000"), ""},  // infinity
		{bytesOf[amqp.Decimal128](t, "7c000000000000000000000000000000"), ""},  // no number
		{bytesOf[amqp.Decimal64](t, "31a000000000007d"), "12.5"},
		{bytesOf[amqp.Decimal64](t, "6c7386f26fc0ffff"), "9999999999999999"},
		{bytesOf[amqp.Decimal64](t, "f800000000000000"), ""},
		{bytesOf[amqp.Decimal32](t, "3200007d"), "12.5"},
		{bytesOf[amqp.Decimal32](t, "b200007d"), "-12.5"},
		{bytesOf[amqp.Decimal32](t, "6cb8967f"), "9999999"},
		{bytesOf[amqp.Decimal32](t, "7c000000"), ""},
	} {
		v := FilterValue(c.wire)
		text, _ := v.Convert(filter.String)
		if text.Text() != c.want || (v.Kind() == filter.Decimal) != (c.want != "") {
			t.Errorf("%T %x is %s %q, want %q", c.wire, c.wire, v.Kind(), text.Text(), c.want)
		}
		if got := WireValue(v, nil); got != c.wire && c.want != "0" {
			t.Errorf("%T %x comes back as %T %x", c.wire, c.wire, got, got)
		}
	}
}

func TestAValueKeepsTheTypeOfWhatItReplaces(t *testing.T) {
	number := func(s string) filter.Value {
		v, ok := filter.StringValue(s).Convert(filter.Decimal)
		if !ok {
			t.Fatal(s)
		}
		return v
	}
	at := time.Unix(1, 500)
	uri := func(s string) any { return amqp.Described{Descriptor: TypeURI, Value: s} }
	for _, c := range []struct {
		v         filter.Value
		was, want any
	}{
		{number("13.5"), nil, bytesOf[amqp.Decimal128](t, "0c3e0000000000000000000000000087")}, // what .NET reads
		{number("13.5"), bytesOf[amqp.Decimal128](t, "0c40000000000000000000000000000c"), bytesOf[amqp.Decimal128](t, "0c3e0000000000000000000000000087")},
		{number("13.5"), bytesOf[amqp.Decimal128](t, "3040000000000000000000000000000c"), bytesOf[amqp.Decimal128](t, "303e0000000000000000000000000087")},
		{number("13.5"), bytesOf[amqp.Decimal64](t, "31c000000000000c"), bytesOf[amqp.Decimal64](t, "31a0000000000087")},
		{number("13.5"), bytesOf[amqp.Decimal32](t, "3280000c"), bytesOf[amqp.Decimal32](t, "32000087")},
		{number("12345678"), bytesOf[amqp.Decimal32](t, "3280000c"), bytesOf[amqp.Decimal128](t, "0c400000000000000000000000bc614e")},
		{number("9999999"), bytesOf[amqp.Decimal32](t, "3280000c"), bytesOf[amqp.Decimal32](t, "6cb8967f")},
		{filter.IntValue(7), int32(1), int32(7)},
		{filter.IntValue(7), "x", int64(7)},
		{filter.IntValue(math.MaxInt64), int32(1), int64(math.MaxInt64)},
		{FilterValue(int32(7)), nil, int32(7)},
		{FilterValue(int32(7)), "x", int32(7)},
		{FilterValue(int32(7)), int64(1), int64(7)},
		{FilterValue(uint8(7)), nil, uint8(7)},
		{FilterValue(float32(0.5)), nil, float32(0.5)},
		{FilterValue(0.5), float32(1), float32(0.5)},
		{FilterValue(amqp.Char('c')), nil, amqp.Char('c')},
		{filter.StringValue("c"), amqp.Char('a'), amqp.Char('c')},
		{filter.StringValue("cc"), amqp.Char('a'), "cc"},
		{FilterValue(amqp.Symbol("s")), nil, amqp.Symbol("s")},
		{FilterValue(uri("x")), nil, uri("x")},
		{filter.StringValue("y"), uri("x"), uri("y")},
		{FilterValue(amqp.UUID{1}), nil, amqp.UUID{1}},
		{FilterValue(amqp.Timestamp(7)), nil, amqp.Timestamp(7)},
		{FilterValue(at), nil, amqp.Timestamp(1000)},
		{FilterValue(at), amqp.Described{Descriptor: amqp.TypeDateTimeOffset, Value: int64(0)}, amqp.Described{Descriptor: amqp.TypeDateTimeOffset, Value: int64(amqp.EpochTicks + 10_000_005)}},
		{FilterValue(amqp.Described{Descriptor: amqp.TypeDateTimeOffset, Value: int64(amqp.EpochTicks + 1)}), nil, amqp.Described{Descriptor: amqp.TypeDateTimeOffset, Value: int64(amqp.EpochTicks + 1)}},
		{FilterValue(amqp.Described{Descriptor: amqp.TypeTimeSpan, Value: int64(7)}), nil, amqp.Described{Descriptor: amqp.TypeTimeSpan, Value: int64(7)}},
		{FilterValue(time.Second), nil, amqp.Described{Descriptor: amqp.TypeTimeSpan, Value: int64(10_000_000)}},
		{FilterValue([]byte("x")), nil, []byte("x")},
		{FilterValue(nil), int32(1), nil},
	} {
		if diff := cmp.Diff(c.want, WireValue(c.v, c.was)); diff != "" {
			t.Errorf("%v in place of %T (-want +got):\n%s", c.v, c.was, diff)
		}
	}
}
