// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A corpusCase is values of every type, in a notation that rhea, proton and we translate: [type,
// text], ["list", [...]], ["map", [[key, value], ...]], ["array", type, [text, ...]], ["described",
// descriptor, value]. Texts are decimal for integers and hexadecimal for bytes, decimals and the
// bits of floats.
type corpusCase struct {
	Name   string
	Values []any
}

// corpus returns the cases and how rhea and proton encode each; they agree to
// the byte. The test in test/sdk runs both to see that they still do, and that
// they read what we write.
func corpus(t *testing.T) (cases []corpusCase, golden map[string][]byte) {
	t.Helper()
	text, err := os.ReadFile("testdata/peers/corpus.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile("testdata/peers/corpus.golden")
	if err != nil {
		t.Fatal(err)
	}
	golden = map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden[name] = b
	}
	if len(golden) != len(cases) || len(cases) == 0 {
		t.Fatalf("%d cases and %d encodings, want as many and some", len(cases), len(golden))
	}
	return cases, golden
}

func TestMessagesOfRheaAndProtonAreRead(t *testing.T) {
	cases, golden := corpus(t)
	for _, c := range cases {
		r := NewReader(golden[c.Name])
		var got []any
		for !r.Done() && r.Err() == nil {
			got = append(got, notation(r.Value()))
		}
		if r.Err() != nil {
			t.Errorf("%s: %v", c.Name, r.Err())
		}
		if diff := cmp.Diff(c.Values, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.Name, diff)
		}
	}
}

func TestMessagesOfRheaAndProtonHaveTheirSections(t *testing.T) {
	cases, golden := corpus(t)
	for _, c := range cases {
		if !strings.HasPrefix(c.Name, "message/") {
			continue
		}
		m, err := ParseMessage(golden[c.Name])
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		h, err := DecodeHeader(m.Header)
		if err != nil || m.Header != nil && (!h.Durable || h.Priority != 9 || h.TTL != 60_000 || h.DeliveryCount != 3) {
			t.Errorf("%s: header = %+v, %v, want durable, priority 9, ttl 60000, delivery-count 3", c.Name, h, err)
		}
		if _, err := DecodeProperties(m.Properties); err != nil {
			t.Errorf("%s: properties: %v", c.Name, err)
		}
		if again := m.Append(nil); !bytes.Equal(again, golden[c.Name]) {
			t.Errorf("%s: appended %x, want the same bytes %x", c.Name, again, golden[c.Name])
		}
	}
}

// They send performatives short, because the last fields are absent, and we send them in full. So
// the test compares after a second reading.
func TestPerformativesOfRheaAndProtonComeBack(t *testing.T) {
	cases, golden := corpus(t)
	for _, c := range cases {
		if !strings.HasPrefix(c.Name, "performative/") {
			continue
		}
		p, payload, err := DecodePerformative(golden[c.Name])
		if err != nil || len(payload) != 0 {
			t.Errorf("%s: %v, %d bytes behind it", c.Name, err, len(payload))
			continue
		}
		again, _, err := DecodePerformative(p.Append(nil))
		if diff := cmp.Diff(p, again); err != nil || diff != "" {
			t.Errorf("%s: %v (-first +second)\n%s", c.Name, err, diff)
		}
	}
}

func TestOutcomesOfRheaAndProtonAreTheirs(t *testing.T) {
	_, golden := corpus(t)
	dead := &Error{Condition: "com.microsoft:dead-letter", Description: "why", Info: Map{
		{Symbol("DeadLetterReason"), "r"}, {Symbol("DeadLetterErrorDescription"), "d"},
	}}
	for name, want := range map[string]DeliveryState{
		"outcome/accepted":      Accepted{},
		"outcome/released":      Released{},
		"outcome/rejected":      &Rejected{Error: dead},
		"outcome/modified":      &Modified{DeliveryFailed: true, MessageAnnotations: Map{{Symbol("k"), "v"}}},
		"outcome/received":      &Received{SectionNumber: 1, SectionOffset: 2},
		"outcome/declared":      &Declared{TxnID: []byte{1, 2}},
		"outcome/transactional": &TransactionalState{TxnID: []byte{1, 2}, Outcome: Accepted{}},
	} {
		r := NewReader(golden[name])
		got := DecodeState(&r)
		if r.Err() != nil {
			t.Errorf("%s: %v", name, r.Err())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// notation is v in the notation of the corpus.
func notation(v any) []any {
	text := func(kind string, v any) []any { return []any{kind, fmt.Sprint(v)} }
	switch v := v.(type) {
	case nil:
		return []any{"null"}
	case bool:
		return text("boolean", v)
	case uint8:
		return text("ubyte", v)
	case uint16:
		return text("ushort", v)
	case uint32:
		return text("uint", v)
	case uint64:
		return text("ulong", v)
	case int8:
		return text("byte", v)
	case int16:
		return text("short", v)
	case int32:
		return text("int", v)
	case int64:
		return text("long", v)
	case float32:
		return text("float", fmt.Sprintf("%08x", math.Float32bits(v)))
	case float64:
		return text("double", fmt.Sprintf("%016x", math.Float64bits(v)))
	case Decimal32:
		return text("decimal32", hex.EncodeToString(v[:]))
	case Decimal64:
		return text("decimal64", hex.EncodeToString(v[:]))
	case Decimal128:
		return text("decimal128", hex.EncodeToString(v[:]))
	case Char:
		return text("char", int32(v))
	case Timestamp:
		return text("timestamp", strconv.FormatInt(int64(v), 10))
	case UUID:
		return text("uuid", hex.EncodeToString(v[:]))
	case []byte:
		return text("binary", hex.EncodeToString(v))
	case string:
		return text("string", v)
	case Symbol:
		return text("symbol", string(v))
	}
	return compoundNotation(v)
}

func compoundNotation(v any) []any {
	switch v := v.(type) {
	case Described:
		return []any{"described", notation(v.Descriptor), notation(v.Value)}
	case List:
		all := []any{}
		for _, e := range v {
			all = append(all, notation(e))
		}
		return []any{"list", all}
	case Map:
		all := []any{}
		for _, p := range v {
			all = append(all, []any{notation(p.Key), notation(p.Value)})
		}
		return []any{"map", all}
	case Array:
		var kind any
		all := []any{}
		for _, e := range v {
			n := notation(e)
			kind, all = n[0], append(all, n[1])
		}
		return []any{"array", kind, all}
	}
	return []any{fmt.Sprintf("unknown %T", v)}
}
