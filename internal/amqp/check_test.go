// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// field encodes properties with v at place i and nothing else.
func field(t *testing.T, i int, v any) Raw {
	t.Helper()
	l := make(List, i+1)
	l[i] = v
	return encoded(t, l)
}

func encoded(t *testing.T, v any) Raw {
	t.Helper()
	b, err := AppendValue(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPropertiesOfTheirTypesPassTheCheck(t *testing.T) {
	all := &Properties{
		MessageID: UUID{1}, UserID: []byte{1}, To: new("ä"), Subject: new(""), ReplyTo: new("r"), CorrelationID: uint64(7),
		ContentType: "text/plain", ContentEncoding: "gzip", HasAbsoluteExpiryTime: true, HasCreationTime: true,
		GroupID: new("g"), HasGroupSequence: true, ReplyToGroupID: new("rg"),
	}
	for name, raw := range map[string]Raw{
		"absent":                   nil,
		"empty":                    {codeList0},
		"every field":              all.Raw(),
		"nulls":                    (&Properties{}).Raw(),
		"binary message-id":        field(t, PropertyMessageID, []byte{0xff}),
		"content type as a string": field(t, PropertyContentType, "text/plain"),
		"subject as a symbol":      field(t, PropertySubject, Symbol("s")),
	} {
		if err := CheckProperties(raw); err != nil {
			t.Errorf("%s: CheckProperties = %v, want nil", name, err)
		}
	}
}

func TestPropertiesThatReceiversCannotReadFailTheCheck(t *testing.T) {
	for name, raw := range map[string]Raw{
		"no list":                   encoded(t, "x"),
		"message-id of boolean":     field(t, PropertyMessageID, true),
		"correlation-id of boolean": field(t, PropertyCorrelationID, true),
		"user-id of string":         field(t, PropertyUserID, "me"),
		"subject of int":            field(t, PropertySubject, int32(5)),
		"subject not UTF-8":         {codeList8, 7, 4, codeNull, codeNull, codeNull, codeString8, 1, 0xff},
		"message-id not UTF-8":      {codeList8, 4, 1, codeString8, 1, 0xff},
		"content type of int":       field(t, PropertyContentType, int32(5)),
		"creation time of long":     field(t, PropertyCreationTime, int64(5)),
		"group-id of ulong":         field(t, PropertyGroupID, uint64(5)),
		"group sequence of int":     field(t, PropertyGroupSequence, int32(5)),
		"a field too many":          field(t, propertyFields, "x"),
		"bytes left over":           {codeList8, 3, 1, codeNull, codeNull},
	} {
		if err := CheckProperties(raw); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: CheckProperties = %v, want ErrMalformed", name, err)
		}
	}
}

func TestCheckDescendsIntoValues(t *testing.T) {
	for name, tc := range map[string]struct {
		value Raw
		ok    bool
	}{
		"string":                {encoded(t, "ä"), true},
		"number":                {encoded(t, int32(5)), true},
		"null":                  {encoded(t, nil), true},
		"map in a list":         {encoded(t, List{Map{{Key: "k", Value: int64(1)}}}), true},
		"array":                 {encoded(t, Array{int32(1)}), true},
		"described":             {encoded(t, Described{Descriptor: Symbol("d"), Value: "x"}), true},
		"empty list":            {Raw{codeList0}, true},
		"string not UTF-8":      {Raw{codeString8, 1, 0xff}, false},
		"map under a list":      {encoded(t, Map{{Key: List{"k"}, Value: "x"}}), false},
		"the same, described":   {encoded(t, Described{Descriptor: Symbol("d"), Value: Map{{Key: []byte("k")}}}), false},
		"the same, deep":        {encoded(t, Map{{Key: "k", Value: List{Array{Map{{Key: Map{}, Value: "x"}}}}}}), false},
		"list that lies inside": {Raw{codeList8, 4, 1, codeList8, 1, 3}, false},
	} {
		r := NewReader(tc.value)
		r.Check()
		switch {
		case tc.ok && (r.Err() != nil || r.Len() != 0):
			t.Errorf("%s: Check = %v with %d bytes left, want all consumed", name, r.Err(), r.Len())
		case !tc.ok && !errors.Is(r.Err(), ErrMalformed):
			t.Errorf("%s: Check = %v, want ErrMalformed", name, r.Err())
		}
	}
}

func TestCheckOfSimpleValuesAllocatesNothing(t *testing.T) {
	raw := (&Properties{MessageID: "id", Subject: new("s"), HasCreationTime: true}).Raw()
	text := encoded(t, "text")
	if n := testing.AllocsPerRun(100, func() {
		r := NewReader(text)
		r.Check()
		if CheckProperties(raw) != nil || r.Err() != nil {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// Every reader of messages has to understand the properties that a broker lets in, or one message
// hides all those beside it.
func TestPropertiesThatPassTheCheckCanBeRead(t *testing.T) {
	texts := []int{PropertyTo, PropertySubject, PropertyReplyTo, PropertyContentType, PropertyContentEncoding, PropertyGroupID, PropertyReplyToGroupID}
	for _, field := range texts {
		for name, value := range map[string]Raw{
			"a string":                     encoded(t, "text"),
			"a string that is not ASCII":   encoded(t, "Text\u00fc"),
			"a symbol":                     encoded(t, Symbol("text")),
			"a symbol that is not ASCII":   append(Raw{codeSymbol8, 6}, "Text\u00fc"...),
			"a symbol that is not UTF-8":   {codeSymbol8, 1, 0xff},
			"a long symbol, not ASCII":     append(Raw{codeSymbol32, 0, 0, 0, 6}, "Text\u00fc"...),
			"a binary":                     encoded(t, []byte("text")),
			"a string that is no encoding": {codeString8, 9, 'x'},
		} {
			list, start := BeginList(nil)
			for range field {
				list = AppendNull(list)
			}
			raw := Raw(EndList(append(list, value...), start, field+1))
			checked := CheckProperties(raw)
			p, err := DecodeProperties(raw)
			if (checked == nil) != (err == nil) {
				t.Errorf("%s in field %d: CheckProperties = %v, DecodeProperties = %v; want both or neither", name, field, checked, err)
			}
			if err != nil {
				continue
			}
			again, err := DecodeProperties(p.Raw())
			if diff := cmp.Diff(p, again); err != nil || diff != "" {
				t.Errorf("%s in field %d, written again: %v (-want +got):\n%s", name, field, err, diff)
			}
		}
	}
}
