// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goldenValues are values in the smallest encoding, by part 1 section 1.6 of the standard.
var goldenValues = []struct {
	hex   string
	value any
}{
	{"40", nil},
	{"41", true},
	{"42", false},
	{"50 ff", uint8(255)},
	{"60 ffff", uint16(65535)},
	{"43", uint32(0)},
	{"52 ff", uint32(255)},
	{"70 00000100", uint32(256)},
	{"44", uint64(0)},
	{"53 01", uint64(1)},
	{"80 0000000000000100", uint64(256)},
	{"51 80", int8(-128)},
	{"61 8000", int16(math.MinInt16)},
	{"54 80", int32(-128)},
	{"71 ffffff7f", int32(-129)},
	{"55 7f", int64(127)},
	{"81 0000000000000080", int64(128)},
	{"72 3f800000", float32(1)},
	{"82 c000000000000000", float64(-2)},
	{"74 22500001", Decimal32{0x22, 0x50, 0, 1}},
	{"84 2230000000000001", Decimal64{0x22, 0x30, 0, 0, 0, 0, 0, 1}},
	{"94 22080000000000000000000000000001", Decimal128{0x22, 0x08, 15: 1}},
	{"73 0001f600", Char('😀')},
	{"83 0000018bcfe5687b", Timestamp(1_700_000_000_123)},
	{"98 00112233445566778899aabbccddeeff", UUID{0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}},
	{"a0 00", []byte{}},
	{"a0 02 0102", []byte{1, 2}},
	{"a1 03 c3bc21", "ü!"},
	{"a3 04 61626364", Symbol("abcd")},
	{"45", List{}},
	{"c0 04 02 43 5201", List{uint32(0), uint32(1)}},
	{"c1 01 00", Map{}},
	{"c1 06 02 a30161 5402", Map{{Symbol("a"), int32(2)}}},
	{"c1 06 02 c0020140 41", Map{{List{nil}, true}}},
	{"e0 02 00 40", Array{}},
	{"e0 0a 02 70 00000001 00000100", Array{uint32(1), uint32(256)}},
	{"e0 04 02 56 0100", Array{true, false}},
	{"e0 06 02 a3 0161 0162", Array{Symbol("a"), Symbol("b")}},
	{"e0 02 03 40", Array{nil, nil, nil}},
	{"e0 13 02 d0 00000004 00000000 00000005 00000001 40", Array{List{}, List{nil}}},
	{"e0 07 02 00 5307 50 01 02", Array{Described{uint64(7), uint8(1)}, Described{uint64(7), uint8(2)}}},
	// Part 1 section 1.2, the URL that is described by its name.
	{"00 a103 55524c a11e 687474703a2f2f6578616d706c652e6f72672f68656c6c6f2d776f726c64",
		Described{"URL", "http://example.org/hello-world"}},
	// Part 1 section 1.4, the book.
	{"00 a311 6578616d706c653a626f6f6b3a6c697374 c0 40 03" +
		" a115 414d515020666f7220262062792044756d6d696573" +
		" e0 25 02 a1 0e 526f62204a2e20476f6466726579 13 52616661656c20482e205363686c6f6d696e67 40",
		Described{Symbol("example:book:list"), List{
			"AMQP for & by Dummies", Array{"Rob J. Godfrey", "Rafael H. Schloming"}, nil,
		}}},
}

func TestValuesHaveTheirSmallestEncoding(t *testing.T) {
	for _, g := range goldenValues {
		want := unhex(t, g.hex)
		got, err := AppendValue(nil, g.value)
		if err != nil {
			t.Errorf("AppendValue(nil, %#v): %v", g.value, err)
		} else if string(got) != string(want) {
			t.Errorf("AppendValue(nil, %#v) = %x, want %x", g.value, got, want)
		}
		r := NewReader(want)
		if v := r.Value(); r.Err() != nil || !r.Done() {
			t.Errorf("Value of %x: %v, %d bytes left", want, r.Err(), r.Len())
		} else if diff := cmp.Diff(g.value, v); diff != "" {
			t.Errorf("Value of %x (-want +got):\n%s", want, diff)
		}
		r = NewReader(want)
		if raw := r.Raw(); string(raw) != string(want) {
			t.Errorf("Raw of %x = %x, %v", want, raw, r.Err())
		}
	}
}

func TestEveryWidthOfATypeIsRead(t *testing.T) {
	for _, g := range []struct {
		hex   string
		value any
	}{
		{"56 01", true},
		{"56 00", false},
		{"52 00", uint32(0)},
		{"70 00000007", uint32(7)},
		{"53 00", uint64(0)},
		{"80 0000000000000007", uint64(7)},
		{"71 ffffffff", int32(-1)},
		{"81 ffffffffffffffff", int64(-1)},
		{"b0 00000001 07", []byte{7}},
		{"b1 00000001 61", "a"},
		{"b3 00000001 61", Symbol("a")},
		{"c0 01 00", List{}},
		{"d0 00000005 00000001 41", List{true}},
		{"d1 00000006 00000002 41 42", Map{{true, false}}},
		{"e0 01 00", Array{}}, // no constructor
		{"f0 00000007 00000002 50 0102", Array{uint8(1), uint8(2)}},
		{"e0 04 02 45", nil}, // stated two bytes too long
	} {
		r := NewReader(unhex(t, g.hex))
		v := r.Value()
		if g.value == nil {
			if r.Err() == nil {
				t.Errorf("Value of %s = %#v, want an error", g.hex, v)
			}
			continue
		}
		if diff := cmp.Diff(g.value, v); diff != "" || r.Err() != nil {
			t.Errorf("Value of %s: %v (-want +got):\n%s", g.hex, r.Err(), diff)
		}
	}
}

func TestWrongTypeNamesWantedAndGot(t *testing.T) {
	for want, read := range map[string]func(*Reader){
		"boolean": func(r *Reader) { r.Bool() }, "ubyte": func(r *Reader) { r.Ubyte() },
		"ushort": func(r *Reader) { r.Ushort() }, "uint": func(r *Reader) { r.Uint() },
		"ulong": func(r *Reader) { r.Ulong() }, "int": func(r *Reader) { r.Int() },
		"long": func(r *Reader) { r.Long() }, "integer": func(r *Reader) { r.Integer() },
		"uuid": func(r *Reader) { r.UUID() }, "binary": func(r *Reader) { r.Binary() },
		"string": func(r *Reader) { _ = r.String() }, "symbol": func(r *Reader) { r.Symbol() },
		"list": func(r *Reader) { r.List() }, "map": func(r *Reader) { r.Map() },
		"array": func(r *Reader) { r.Array() }, "described value": func(r *Reader) { r.Descriptor() },
	} {
		r := NewReader(AppendTimestamp(nil, 0))
		read(&r)
		if message := "want " + want + ", got timestamp"; !errors.Is(r.Err(), ErrMalformed) ||
			!strings.HasSuffix(r.Err().Error(), message) {
			t.Errorf("reading a timestamp as %s: %v, want %q", want, r.Err(), message)
		}
		r = NewReader(nil)
		if read(&r); !errors.Is(r.Err(), ErrMalformed) || !strings.HasSuffix(r.Err().Error(), "value missing") {
			t.Errorf("reading %s from nothing: %v", want, r.Err())
		}
	}
}

func TestFirstErrorSticks(t *testing.T) {
	b := AppendUint(AppendString(nil, "a"), 7)
	r := NewReader(b)
	r.Bool()
	first := r.Err()
	if r.Uint() != 0 || r.Raw() != nil || r.Value() != nil || !r.Done() || !errors.Is(r.Err(), first) {
		t.Errorf("after %v the reader went on, error now %v", first, r.Err())
	}
}

func TestTextIsCheckedWhereItIsRead(t *testing.T) {
	for _, bad := range []string{"a102 c328", "a302 c3bc", "56 02", "73 0000d800", "73 00110000"} {
		b := unhex(t, bad)
		r := NewReader(b)
		if v := r.Value(); !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("Value of %s = %#v, %v, want an error", bad, v, r.Err())
		}
		r = NewReader(b)
		if r.Skip(); r.Err() != nil {
			t.Errorf("Skip of %s: %v, want what is only passed on left alone", bad, r.Err())
		}
	}
	for got, want := range map[string]string{
		string(AppendString(nil, "a\xffb")): "\xa1\x05a\uFFFDb",
		string(AppendSymbol(nil, "aüb")):    "\xa3\x04a??b",
	} {
		if got != want {
			t.Errorf("bad text written as %q, want %q", got, want)
		}
	}
}

func TestSymbolsAreReadOneOrMany(t *testing.T) {
	for hex, want := range map[string][]Symbol{
		"40":                   nil,
		"a30161":               {"a"},
		"e006 02 a3 0161 0162": {"a", "b"},
		"e001 00":              {},
	} {
		r := NewReader(unhex(t, hex))
		if diff := cmp.Diff(want, r.Symbols()); diff != "" || r.Err() != nil || !r.Done() {
			t.Errorf("Symbols of %s: %v (-want +got):\n%s", hex, r.Err(), diff)
		}
	}
	for _, hex := range []string{"", "a10161", "e006 02 a1 0161 0162", "e005 02 a3 0161 05", "a301ff"} {
		r := NewReader(unhex(t, hex))
		if got := r.Symbols(); got != nil || !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("Symbols of %q = %v, %v, want ErrMalformed", hex, got, r.Err())
		}
	}
	// Whole composites are read the way clients write them, which is not always as symbols.
	p, err := DecodeProperties(unhex(t, "c0 0f 07 40404040 4040 a106 746578742f78"))
	if err != nil || p.ContentType != "text/x" {
		t.Errorf("content-type as a string: %q, %v", p.ContentType, err)
	}
	if p, err := DecodeProperties(unhex(t, "c0 0b 07 40404040 4040 a102 c3bc")); err != nil || p.ContentType != "ü" {
		t.Errorf("content-type that is not ASCII: %q, %v, want it as it is", p.ContentType, err)
	}
}

func TestAnyIntegerTypeIsRead(t *testing.T) {
	for _, v := range []any{uint8(9), uint16(9), uint32(9), uint64(9), int8(9), int16(9), int32(9), int64(9)} {
		raw, err := AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(raw)
		if got := r.Integer(); got != 9 || r.Err() != nil {
			t.Errorf("Integer of %T = %d, %v", v, got, r.Err())
		}
	}
	r := NewReader(AppendUlong(nil, math.MaxUint64))
	if v := r.Integer(); r.Err() == nil {
		t.Errorf("Integer of the largest ulong = %d, want an error", v)
	}
}

func TestUnencodableValuesAreRefused(t *testing.T) {
	deep := any(List{})
	for range MaxDepth {
		deep = List{deep}
	}
	for name, v := range map[string]any{
		"Go type":             struct{}{},
		"within a list":       List{1},
		"within a map":        Map{{"a", 1}},
		"map key":             Map{{1, "a"}},
		"descriptor":          Described{1, "a"},
		"array of types":      Array{uint32(1), "a"},
		"array of text":       Array{"a", Symbol("a")},
		"array of raw":        Array{Raw{codeNull}},
		"array half":          Array{Described{uint64(1), nil}, nil},
		"array descriptors":   Array{Described{uint64(1), nil}, Described{uint64(2), nil}},
		"array of too much":   make(Array, MaxZeroWidth+1),
		"deeper than allowed": deep,
	} {
		if b, err := AppendValue([]byte("x"), v); !errors.Is(err, ErrUnencodable) || string(b) != "x" {
			t.Errorf("%s: AppendValue = %q, %v, want the bytes from before and ErrUnencodable", name, b, err)
		}
	}
}

func TestTimestampIsInMilliseconds(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 789_999_999, time.FixedZone("", 3600))
	if got, want := TimestampOf(at).Time(), at.UTC().Truncate(time.Millisecond); !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("TimestampOf(%v).Time() = %v, want %v", at, got, want)
	}
	if got, want := (UUID{0x12, 0x34, 15: 0xff}).String(), "12340000-0000-0000-0000-0000000000ff"; got != want {
		t.Errorf("UUID.String = %s, want %s", got, want)
	}
}

// valueOf generates any value that nests at most depth deep.
func valueOf(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Uint8().AsAny(), rapid.Uint16().AsAny(),
		rapid.Uint32().AsAny(), rapid.Uint64().AsAny(), rapid.Int8().AsAny(), rapid.Int16().AsAny(),
		rapid.Int32().AsAny(), rapid.Int64().AsAny(), rapid.Float32().AsAny(), rapid.Float64().AsAny(),
		rapid.Map(rapid.Rune(), func(r rune) any { return Char(r) }),
		rapid.Map(rapid.Int64(), func(n int64) any { return Timestamp(n) }),
		rapid.Map(rapid.Uint64(), func(n uint64) any { return UUID{0: byte(n), 15: byte(n >> 8)} }),
		rapid.Map(rapid.Uint8(), func(n uint8) any { return Decimal32{n} }),
		rapid.Map(rapid.Uint8(), func(n uint8) any { return Decimal64{n} }),
		rapid.Map(rapid.Uint8(), func(n uint8) any { return Decimal128{n} }),
		rapid.SliceOfN(rapid.Byte(), 0, 300).AsAny(), rapid.StringN(0, 300, 400).AsAny(),
		rapid.Map(rapid.StringMatching(`[!-~]{0,20}`), func(s string) any { return Symbol(s) }),
	}
	if depth > 0 {
		inner := valueOf(depth - 1)
		kinds = append(kinds,
			rapid.Map(rapid.SliceOfN(inner, 0, 40), func(l []any) any { return List(l) }),
			rapid.Map(rapid.SliceOfN(pairOf(inner), 0, 40), func(p []Pair) any { return Map(p) }),
			rapid.Custom(func(t *rapid.T) any { return Described{rapid.Uint64().Draw(t, "descriptor"), inner.Draw(t, "value")} }),
			arrayOf(kinds, depth),
		)
	}
	return rapid.OneOf(kinds...)
}

func pairOf(g *rapid.Generator[any]) *rapid.Generator[Pair] {
	return rapid.Custom(func(t *rapid.T) Pair { return Pair{g.Draw(t, "key"), g.Draw(t, "value")} })
}

// arrayOf picks one kind for all elements, and sometimes describes them.
func arrayOf(kinds []*rapid.Generator[any], depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kind := kinds[rapid.IntRange(1, len(kinds)-1).Draw(t, "kind")] // but no nulls, which are bounded
		if depth > 1 && rapid.Bool().Draw(t, "nested") {
			kind = rapid.Map(rapid.SliceOfN(kind, 0, 5), func(l []any) any { return Array(l) })
		}
		all := Array(rapid.SliceOfN(kind, 0, 20).Draw(t, "elements"))
		if rapid.Bool().Draw(t, "described") {
			for i := range all {
				all[i] = Described{Symbol("d"), all[i]}
			}
		}
		return all
	})
}

var equalValues = cmp.Options{cmpopts.EquateNaNs()}

func TestRandomValuesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valueOf(3).Draw(t, "value")
		raw, err := AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(append(raw, 0xff))
		if diff := cmp.Diff(v, r.Value(), equalValues); diff != "" || r.Len() != 1 {
			t.Fatalf("Value of %x: %v, %d bytes left (-want +got):\n%s", raw, r.Err(), r.Len(), diff)
		}
		r = NewReader(append(raw, 0xff))
		if r.Skip(); r.Len() != 1 || r.Err() != nil {
			t.Fatalf("Skip of %x left %d bytes, %v", raw, r.Len(), r.Err())
		}
	})
}

func TestElementsOfAnArrayAreSlicedWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := Array{}
		for _, s := range rapid.SliceOfN(rapid.String(), 1, 9).Draw(t, "strings") {
			all = append(all, Described{Symbol("d"), s})
		}
		raw, err := AppendValue(nil, all)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(raw)
		sub, n := r.Array()
		for i := range n {
			element := sub.Raw()
			one := NewReader(element)
			if diff := cmp.Diff(all[i], one.Value()); diff != "" || !one.Done() || one.Err() != nil {
				t.Fatalf("element %d as %x: %v (-want +got):\n%s", i, element, one.Err(), diff)
			}
		}
		if !sub.Done() || sub.Err() != nil {
			t.Fatalf("array not done after %d elements, %v", n, sub.Err())
		}
	})
}
