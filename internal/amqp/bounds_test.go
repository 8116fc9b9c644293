// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
)

// nested returns n values, each the only content of the one around it.
func nested(n int, open []byte) []byte {
	b := []byte{codeNull}
	for range n {
		outer := append([]byte(nil), open...)
		if open[0] == codeList32 {
			outer = binary.BigEndian.AppendUint32(outer[:1], uint32(len(b)+4))
			outer = binary.BigEndian.AppendUint32(outer, 1)
		}
		b = append(outer, b...)
	}
	return b
}

func TestHostileValuesAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":                     {},
		"unknown constructor":         {0x46},
		"truncated ulong":             {codeUlong, 1, 2},
		"truncated string":            {codeString8, 5, 'a'},
		"string of 4 GiB":             {codeString32, 0xff, 0xff, 0xff, 0xff, 'a'},
		"list without size":           {codeList32, 0, 0},
		"list without count":          {codeList8, 0},
		"list32 without count":        {codeList32, 0, 0, 0, 3, 0, 0, 0},
		"list of too many":            {codeList32, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, codeNull},
		"list with a tail":            {codeList8, 3, 1, codeNull, codeNull},
		"list cut short":              {codeList8, 3, 2, codeUbyte, 1},
		"map of an odd count":         {codeMap8, 2, 1, codeNull},
		"map of too many":             {codeMap32, 0, 0, 0, 6, 0x80, 0, 0, 0, codeNull, codeNull},
		"array without constructor":   {codeArray8, 1, 1},
		"array of unknown":            {codeArray8, 2, 0, 0x46},
		"array of 4 billion nulls":    {codeArray32, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, codeNull},
		"array of 4 billion lists":    {codeArray32, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, codeList0},
		"array of 257 trues":          {codeArray32, 0, 0, 0, 5, 0, 0, 1, 1, codeTrue},
		"array of too many ulongs":    {codeArray8, 10, 2, codeUlong, 0, 0, 0, 0, 0, 0, 0, 1},
		"array with a tail":           {codeArray8, 4, 1, codeUbyte, 1, 2},
		"array descriptor cut short":  {codeArray8, 3, 1, codeDescribed, codeUlong},
		"descriptor missing":          {codeDescribed},
		"described value missing":     {codeDescribed, codeUlong0},
		"lists nested too deep":       nested(MaxDepth+1, []byte{codeList32}),
		"descriptors nested too deep": nested(MaxDepth+1, []byte{codeDescribed, codeUlong0}),
		"descriptors of descriptors":  bytes.Repeat([]byte{codeDescribed}, 1<<20),
		"array descriptors too deep":  append([]byte{codeArray32, 0, 0, 1, 4, 0, 0, 0, 0}, bytes.Repeat([]byte{codeDescribed}, 256)...),
	} {
		r := NewReader(b)
		if v := r.Value(); v != nil || !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("%s: Value = %#v, %v, want ErrMalformed", name, v, r.Err())
		}
	}
	for name, b := range map[string][]byte{
		"lists":       nested(MaxDepth, []byte{codeList32}),
		"descriptors": nested(MaxDepth, []byte{codeDescribed, codeUlong0}),
		"nulls":       {codeArray32, 0, 0, 0, 5, 0, 0, 1, 0, codeNull},
	} {
		r := NewReader(b)
		if r.Value(); r.Err() != nil || !r.Done() {
			t.Errorf("%s up to the bound: %v", name, r.Err())
		}
	}
}

func TestElementsWithoutBytesShareOneBound(t *testing.T) {
	array := []byte{codeArray32, 0, 0, 0, 5, 0, 0, 0, 200, codeNull}
	b, start := BeginList(nil)
	b = EndList(append(append(b, array...), array...), start, 2)
	r := NewReader(b)
	if r.Value(); !errors.Is(r.Err(), ErrMalformed) {
		t.Errorf("two arrays of 200 nulls in one value: %v, want an error beyond %d", r.Err(), MaxZeroWidth)
	}
}

// A peer's bytes may cost memory in proportion to their number, whatever counts they state.
func TestMemoryIsBoundedByTheBytesThatCame(t *testing.T) {
	const size = 64 << 10
	fill := func(element ...byte) []byte {
		b, start := BeginList(nil)
		n := size / len(element)
		return EndList(append(b, bytes.Repeat(element, n)...), start, n)
	}
	pairs := fill(codeNull)
	pairs[0] = codeMap32
	for name, b := range map[string][]byte{
		"nulls":          fill(codeNull),
		"pairs":          pairs,
		"empty lists":    fill(codeList0),
		"lists of one":   fill(codeList8, 2, 1, codeNull),
		"empty maps":     fill(codeMap8, 1, 0),
		"symbols":        fill(codeSymbol8, 1, 'a'),
		"described":      fill(codeDescribed, codeNull, codeNull),
		"lying lists":    fill(codeList8, 9, 8, codeList8, 6, 5, codeList8, 3, 2, codeNull, codeNull),
		"arrays of null": fill(codeArray8, 2, MaxZeroWidth-1, codeNull),
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := NewReader(b)
		v := r.Value()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(v)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(20*len(b)+8<<10); got > limit {
			t.Errorf("%s: Value of %d bytes allocated %d, want at most %d", name, len(b), got, limit)
		}
	}
}

func TestElementOfAnArrayCannotLeaveIt(t *testing.T) {
	b := unhex(t, "e0 03 01 50 07")
	r := NewReader(b)
	sub, n := r.Array()
	if n != 1 || sub.Ubyte() != 7 || sub.Err() != nil {
		t.Fatalf("array of %d, %v", n, sub.Err())
	}
	if sub.Ubyte(); !errors.Is(sub.Err(), ErrMalformed) {
		t.Errorf("reading behind the last element: %v, want an error", sub.Err())
	}
	for _, read := range []func(*Reader){(*Reader).Skip, func(r *Reader) { r.Raw() }, func(r *Reader) { r.Value() }} {
		r = NewReader(unhex(t, "e0 03 01 a0 05"))
		sub, _ = r.Array()
		if read(&sub); !errors.Is(sub.Err(), ErrMalformed) {
			t.Errorf("reading a truncated element: %v, want an error", sub.Err())
		}
	}
}

func TestUnknownDescriptorsAreRefused(t *testing.T) {
	const name = "com.microsoft:session-filter"
	b := AppendString(AppendSymbol([]byte{codeDescribed}, name), "s1")
	r := NewReader(b)
	if r.Descriptor(); r.Err() == nil || !strings.Contains(r.Err().Error(), name) {
		t.Errorf("Descriptor of an unknown symbol: %v, want an error that names it", r.Err())
	}
	r = NewReader(b)
	if got := r.PeekDescriptor(); got != 0 || r.Err() != nil {
		t.Errorf("PeekDescriptor of an unknown symbol = %#x, %v, want 0", got, r.Err())
	}
}
