// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSectionsOutOfOrderAreRefused(t *testing.T) {
	const (
		header   = "005370 45"
		delivery = "005371 c10100"
		message  = "005372 c10100"
		props    = "005373 45"
		app      = "005374 c10100"
		data     = "005375 a00101"
		sequence = "005376 45"
		value    = "005377 40"
		footer   = "005378 c10100"
	)
	for name, c := range map[string]struct {
		hex string
		ok  bool
	}{
		"all, data":              {header + delivery + message + props + app + data + data + footer, true},
		"sequences":              {sequence + sequence + sequence, true},
		"value":                  {value, true},
		"no body":                {header + footer, true},
		"nothing":                {"", true},
		"by name":                {"00a310 616d71703a6865616465723a6c697374 45" + value, true},
		"annotations last":       {header + data + delivery, true},
		"behind the footer too":  {value + footer + delivery, true},
		"annotations late":       {message + delivery + value, false},
		"annotations twice":      {delivery + value + delivery, false},
		"header twice":           {header + header + value, false},
		"header late":            {props + header + value, false},
		"value twice":            {value + value, false},
		"two kinds of body":      {data + sequence, false},
		"value after data":       {data + value, false},
		"footer first":           {header + footer + data + data, true},
		"behind an early footer": {header + footer + props + data, false},
		"footer in the body":     {data + footer + data, false},
		"footer twice":           {footer + footer, false},
		"no section":             {"00531045", false},
		"not described":          {"a00101", false},
		"header of a map":        {"005370 c10100", false},
		"null header":            {"005370 40", false},
		"annotations of a list":  {"005372 45", false},
		"data of a string":       {"005375 a10161", false},
		"sequence of a value":    {"005376 40", false},
		"odd map":                {"005374 c1020140", false},
		"lying count":            {"005370 c00105", false},
		"tail in a map":          {"005374 c107 02 a10161 41 " + "41" + value, false},
		"fewer elements":         {"005372 c103 04 4040", false},
		"cut short":              {"005375 a0ff01", false},
		"descriptor only":        {"005377", false},
	} {
		m, err := ParseMessage(unhex(t, c.hex))
		if ok := err == nil; ok != c.ok || !ok && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want ok %t", name, err, c.ok)
		}
		if !c.ok && cmp.Diff(Message{}, m) != "" {
			t.Errorf("%s: refused, but sections came back", name)
		}
	}
}

func TestHeaderStatesWhatIsAbsent(t *testing.T) {
	if h, err := DecodeHeader(nil); err != nil || h != (Header{Priority: DefaultPriority}) {
		t.Errorf("DecodeHeader(nil) = %+v, %v", h, err)
	}
	want := unhex(t, "005370 c0 07 05 42 5004 40 42 43")
	if got := (Header{Priority: DefaultPriority}).Append(nil); !bytes.Equal(got, want) {
		t.Errorf("Header.Append = %x, want %x: clients fail on an absent delivery-count", got, want)
	}
	if _, err := DecodeHeader(Raw{codeNull}); !errors.Is(err, ErrMalformed) {
		t.Errorf("DecodeHeader of null: %v", err)
	}
	if _, err := DecodeProperties(Raw(unhex(t, "c0 02 01 41"))); !errors.Is(err, ErrMalformed) {
		t.Errorf("DecodeProperties with a boolean message-id: %v", err)
	}
	if p, err := DecodeProperties(nil); err != nil || cmp.Diff(Properties{}, p) != "" {
		t.Errorf("DecodeProperties(nil) = %+v, %v", p, err)
	}
}

func TestRandomPropertiesComeBack(t *testing.T) {
	ids := rapid.OneOf(rapid.Just[any](nil), rapid.Uint64().AsAny(), rapid.String().AsAny(),
		rapid.SliceOf(rapid.Byte()).AsAny(), rapid.Map(rapid.Byte(), func(b byte) any { return UUID{b} }))
	text := rapid.Ptr(rapid.String(), true)
	symbol := rapid.Map(rapid.StringMatching(`[!-~]{0,9}`), func(s string) Symbol { return Symbol(s) })
	rapid.Check(t, func(t *rapid.T) {
		want := Properties{
			MessageID: ids.Draw(t, "message-id"), To: text.Draw(t, "to"), Subject: text.Draw(t, "subject"),
			ReplyTo: text.Draw(t, "reply-to"), CorrelationID: ids.Draw(t, "correlation-id"),
			ContentType: symbol.Draw(t, "content-type"), ContentEncoding: symbol.Draw(t, "content-encoding"),
			GroupID: text.Draw(t, "group-id"), ReplyToGroupID: text.Draw(t, "reply-to-group-id"),
		}
		if want.HasCreationTime = rapid.Bool().Draw(t, "has"); want.HasCreationTime {
			want.CreationTime = Timestamp(rapid.Int64().Draw(t, "creation-time"))
			want.AbsoluteExpiryTime, want.HasAbsoluteExpiryTime = want.CreationTime, true
			want.GroupSequence, want.HasGroupSequence = rapid.Uint32().Draw(t, "group-sequence"), true
			want.UserID = rapid.SliceOfN(rapid.Byte(), 1, 5).Draw(t, "user-id")
		}
		got, err := DecodeProperties(want.Raw())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		m, err := ParseMessage(want.Append(nil))
		if err != nil || !bytes.Equal(m.Properties, want.Raw()) {
			t.Fatalf("section %x, value %x, %v", want.Append(nil), want.Raw(), err)
		}
		r, ok := ListField(m.Properties, PropertyGroupID)
		if ok != (want.GroupID != nil) || ok && r.String() != *want.GroupID {
			t.Fatalf("ListField of the group-id: %t, want %v", ok, want.GroupID)
		}
	})
}

func TestBatchGivesItsMessages(t *testing.T) {
	body := AppendData(AppendData(nil, []byte("one")), bytes.Repeat([]byte("x"), 300))
	var got []int
	for b, err := range DataSections(body) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, len(b))
	}
	if diff := cmp.Diff([]int{3, 300}, got); diff != "" {
		t.Errorf("sizes of the messages (-want +got):\n%s", diff)
	}
	for b := range DataSections(body) {
		if string(b) != "one" {
			t.Errorf("first = %q", b)
		}
		break // a caller may stop early
	}
	for _, bad := range [][]byte{
		append(bytes.Clone(body), codeDescribed), AppendValueSection(bytes.Clone(body), nil), {codeBinary8, 0}, body[:4],
	} {
		var last error
		for _, last = range DataSections(bad) {
		}
		if !errors.Is(last, ErrMalformed) {
			t.Errorf("DataSections of %.20x ended with %v, want ErrMalformed", bad, last)
		}
	}
	for range DataSections(nil) {
		t.Error("an empty body has a data section")
	}
}

func TestValueBodyIsEntered(t *testing.T) {
	m := Message{Body: AppendValueSection(nil, Raw(AppendString(nil, "v")))}
	if r, ok := m.Value(); !ok || r.String() != "v" {
		t.Errorf("Value: %t, %v", ok, r.Err())
	}
	m.Body = AppendData(nil, nil)
	if _, ok := m.Value(); ok {
		t.Error("Value of a data body reports true")
	}
}

func TestLookupFindsTheFirstOfEitherKind(t *testing.T) {
	raw, err := AppendValue(nil, Map{
		{List{"key"}, "list"}, {uint64(1), "number"}, {Symbol("a"), "symbol"}, {"a", "later"}, {"b", nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := MapLookup(raw, "a"); !ok || r.String() != "symbol" || !r.Done() {
		t.Errorf("MapLookup(a): %t, %v", ok, r.Err())
	}
	if r, ok := MapLookup(raw, "b"); !ok || !r.Null() || !r.Done() {
		t.Errorf("MapLookup(b) is no null: %t, %v", ok, r.Err())
	}
	for _, c := range []Raw{raw, nil, {codeNull}, {codeMap8, 5, 2, codeString8}, unhex(t, "c1 06 04 a10161 4040"), raw[:9]} {
		if _, ok := MapLookup(c, "c"); ok {
			t.Errorf("MapLookup(c) in %x found something", c)
		}
	}
	if _, ok := MapLookup(unhex(t, "c1 05 02 a10163 a105"), "c"); ok {
		t.Error("MapLookup found a value that is cut short")
	}
	for i, want := range map[int]bool{-1: false, 0: true, 1: false, 2: true, 3: false} {
		if r, ok := ListField(unhex(t, "c0 04 03 41 40 42"), i); ok != want || ok && r.Len() != 1 {
			t.Errorf("ListField(%d) = %t, want %t", i, ok, want)
		}
	}
	m := Map{{List{}, 0}, {Symbol("a"), 1}, {"a", 2}}
	if v, ok := m.Get("a"); !ok || v != 1 {
		t.Errorf("Map.Get(a) = %v, %t, want the first", v, ok)
	}
	if v, ok := m.Get("b"); ok {
		t.Errorf("Map.Get(b) = %v", v)
	}
}

func TestOverlayReplacesByKeyAndKeepsTheRest(t *testing.T) {
	base, err := AppendValue(nil, Map{{Symbol("keep"), int64(1 << 40)}, {Symbol("over"), "old"}, {List{}, "odd"}, {"over", "too"}})
	if err != nil {
		t.Fatal(err)
	}
	over := Map{{Symbol("over"), "new"}, {Symbol("more"), true}}
	for _, c := range []struct {
		base Raw
		want Map
	}{
		{nil, over},
		{base, Map{{Symbol("keep"), int64(1 << 40)}, {List{}, "odd"}, {Symbol("over"), "new"}, {Symbol("more"), true}}},
	} {
		b, err := OverlayMap([]byte("x"), c.base, over)
		if err != nil || b[0] != 'x' {
			t.Fatal(b, err)
		}
		r := NewReader(b[1:])
		if diff := cmp.Diff(any(c.want), r.Value()); diff != "" || !r.Done() {
			t.Errorf("OverlayMap: %v (-want +got):\n%s", r.Err(), diff)
		}
	}
	if b, err := OverlayMap([]byte("x"), base[:10], over); string(b) != "x" || !errors.Is(err, ErrMalformed) {
		t.Errorf("OverlayMap of a cut map = %q, %v", b, err)
	}
	if b, err := OverlayMap([]byte("x"), base, Map{{"a", 1}}); string(b) != "x" || !errors.Is(err, ErrUnencodable) {
		t.Errorf("OverlayMap with an int = %q, %v", b, err)
	}
}
