// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

// fullMessage has every section and every field, as go-amqp's client fills them.
func fullMessage() *goamqp.Message {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	return &goamqp.Message{
		Header: &goamqp.MessageHeader{
			Durable: true, Priority: 7, TTL: 30 * time.Second, FirstAcquirer: true, DeliveryCount: 3,
		},
		DeliveryAnnotations: goamqp.Annotations{"x-opt-lock-token": goamqp.UUID{1, 2, 3}},
		Annotations:         goamqp.Annotations{"x-opt-sequence-number": int64(1 << 40)},
		Properties: &goamqp.MessageProperties{
			MessageID: "m-1", UserID: []byte("user"), To: ptr("orders"), Subject: ptr("created"),
			ReplyTo: ptr("answers"), CorrelationID: uint64(99), ContentType: ptr("application/json"),
			ContentEncoding: ptr("gzip"), AbsoluteExpiryTime: &at, CreationTime: &at,
			GroupID: ptr("session-1"), GroupSequence: ptr(uint32(5)), ReplyToGroupID: ptr("session-2"),
		},
		ApplicationProperties: map[string]any{"overdue-within": "30s"},
		Data:                  [][]byte{[]byte(`{"order":1}`)},
		Footer:                goamqp.Annotations{"sum": int32(7)},
	}
}

func TestMessageOfGoAMQPIsCutIntoItsSections(t *testing.T) {
	b, err := fullMessage().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Append(nil); !bytes.Equal(got, b) {
		t.Errorf("Append after ParseMessage\n got %x\nwant %x", got, b)
	}
	h, err := DecodeHeader(m.Header)
	want := Header{Durable: true, Priority: 7, TTL: 30_000, HasTTL: true, FirstAcquirer: true, DeliveryCount: 3}
	if err != nil || h != want {
		t.Errorf("DecodeHeader = %+v, %v, want %+v", h, err, want)
	}
	p, err := DecodeProperties(m.Properties)
	if err != nil {
		t.Fatal(err)
	}
	wantProperties := Properties{
		MessageID: "m-1", UserID: []byte("user"), To: ptr("orders"), Subject: ptr("created"),
		ReplyTo: ptr("answers"), CorrelationID: uint64(99), ContentType: "application/json",
		ContentEncoding: "gzip", AbsoluteExpiryTime: 1_700_000_000_123, HasAbsoluteExpiryTime: true,
		CreationTime: 1_700_000_000_123, HasCreationTime: true, GroupID: ptr("session-1"),
		GroupSequence: 5, HasGroupSequence: true, ReplyToGroupID: ptr("session-2"),
	}
	if diff := cmp.Diff(wantProperties, p); diff != "" {
		t.Errorf("DecodeProperties (-want +got):\n%s", diff)
	}
	if r, ok := MapLookup(m.MessageAnnotations, "x-opt-sequence-number"); !ok || r.Long() != 1<<40 {
		t.Errorf("sequence number not found in the annotations, err %v", r.Err())
	}
	if r, ok := MapLookup(m.ApplicationProperties, "overdue-within"); !ok || r.String() != "30s" {
		t.Errorf("application property not found, err %v", r.Err())
	}
	if r, ok := MapLookup(m.DeliveryAnnotations, "x-opt-lock-token"); !ok || r.UUID() != (UUID{1, 2, 3}) {
		t.Errorf("lock token not found, err %v", r.Err())
	}
	if r, ok := MapLookup(m.Footer, "sum"); !ok || r.Int() != 7 {
		t.Errorf("footer not found, err %v", r.Err())
	}
	for data, err := range DataSections(m.Body) {
		if err != nil || string(data) != `{"order":1}` {
			t.Errorf("data section = %q, %v", data, err)
		}
	}
}

func TestMessageOfOursIsReadByGoAMQP(t *testing.T) {
	want := fullMessage()
	b, err := want.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	// Encode again everything that has an encoder.
	h, err := DecodeHeader(m.Header)
	if err != nil {
		t.Fatal(err)
	}
	p, err := DecodeProperties(m.Properties)
	if err != nil {
		t.Fatal(err)
	}
	m.Header, m.Properties = h.Raw(), p.Raw()
	for _, section := range []*Raw{&m.DeliveryAnnotations, &m.MessageAnnotations, &m.ApplicationProperties, &m.Footer} {
		r := NewReader(*section)
		if *section, err = AppendValue(nil, r.Value()); err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
	}
	got, err := unmarshal(m.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(goamqp.Message{})); diff != "" {
		t.Errorf("go-amqp read something else (-want +got):\n%s", diff)
	}
}

// typedValues are values as go-amqp has them and as we have them.
var typedValues = []struct{ theirs, ours any }{
	{true, true}, {uint8(200), uint8(200)}, {uint16(60000), uint16(60000)}, {uint32(0), uint32(0)},
	{uint32(200), uint32(200)}, {uint32(1 << 30), uint32(1 << 30)}, {uint64(0), uint64(0)},
	{uint64(200), uint64(200)}, {uint64(1 << 60), uint64(1 << 60)}, {int8(-5), int8(-5)},
	{int16(-500), int16(-500)}, {int32(-5), int32(-5)}, {int32(-500), int32(-500)}, {int64(-5), int64(-5)},
	{int64(-1 << 60), int64(-1 << 60)}, {float32(1.5), float32(1.5)}, {float64(-2.5), float64(-2.5)},
	{"", ""}, {"text", "text"}, {strings.Repeat("ü", 300), strings.Repeat("ü", 300)},
	{[]byte{1, 2}, []byte{1, 2}}, {goamqp.UUID{9}, UUID{9}}, {nil, nil},
	{time.UnixMilli(1_700_000_000_123).UTC(), Timestamp(1_700_000_000_123)},
	{[]any{int64(1), "a"}, List{int64(1), "a"}},
	{map[string]any{"k": true}, Map{{"k", true}}},
	{[]string{"a", "b"}, Array{"a", "b"}}, {[]int64{1, 1 << 40}, Array{int64(1), int64(1 << 40)}},
	{[]bool{true, false}, Array{true, false}}, {[]uint32{1, 1 << 20}, Array{uint32(1), uint32(1 << 20)}},
	{[]goamqp.UUID{{1}, {2}}, Array{UUID{1}, UUID{2}}}, {[]float64{1, 2}, Array{float64(1), float64(2)}},
	{[]goamqp.Symbol{"a"}, Array{Symbol("a")}}, // a single one goes in as a symbol and comes out as a string
}

func TestTypesMeanTheSameToGoAMQP(t *testing.T) {
	for _, v := range typedValues {
		b, err := (&goamqp.Message{Value: v.theirs, ApplicationProperties: map[string]any{"k": v.theirs}}).MarshalBinary()
		if err != nil {
			t.Fatalf("go-amqp cannot marshal %#v: %v", v.theirs, err)
		}
		m, err := ParseMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := MapLookup(m.ApplicationProperties, "k")
		if diff := cmp.Diff(v.ours, r.Value()); !ok || diff != "" || !r.Done() {
			t.Errorf("%T of go-amqp: %v (-want +got):\n%s", v.theirs, r.Err(), diff)
		}
		raw, err := AppendValue(nil, Map{{"k", v.ours}})
		if err != nil {
			t.Fatal(err)
		}
		m = Message{ApplicationProperties: raw, Body: AppendData(nil, nil)}
		theirs, err := unmarshal(m.Append(nil))
		if err != nil {
			t.Errorf("%T of ours: go-amqp says %v", v.ours, err)
		} else if diff := cmp.Diff(v.theirs, theirs.ApplicationProperties["k"]); diff != "" {
			t.Errorf("%T of ours (-want +got):\n%s", v.ours, diff)
		}
	}
}

func TestBodiesOfEveryKindAreKept(t *testing.T) {
	for _, sent := range []*goamqp.Message{
		{Value: "v"}, {Sequence: [][]any{{int64(1)}, {"a", nil}}}, {Data: [][]byte{{1}, {2, 3}}}, {},
	} {
		b, err := sent.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		m, err := ParseMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unmarshal((&Message{Header: Header{}.Raw(), Body: m.Body}).Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		got.Header = nil
		if diff := cmp.Diff(sent, got, cmp.AllowUnexported(goamqp.Message{})); diff != "" {
			t.Errorf("message under a new header (-want +got):\n%s", diff)
		}
	}
}

// go-amqp panics on this one, which is why it reads nothing that comes from a peer of ours.
func TestMapKeysMayBeAnything(t *testing.T) {
	annotations, err := AppendValue(nil, Map{{List{"key"}, true}, {Symbol("x-opt-via"), "v"}})
	if err != nil {
		t.Fatal(err)
	}
	b := (&Message{MessageAnnotations: annotations}).Append(nil)
	if _, err := unmarshal(b); !errors.Is(err, errPanicked) {
		t.Logf("go-amqp has learnt to read a list as a key: %v", err)
	}
	m, err := ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := MapLookup(m.MessageAnnotations, "x-opt-via"); !ok || r.String() != "v" {
		t.Errorf("annotation behind a list key not found, %v", r.Err())
	}
}

// unmarshal guards against go-amqp's panic on a map key that cannot be hashed.
func unmarshal(b []byte) (m *goamqp.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errPanicked
		}
	}()
	m = new(goamqp.Message)
	return m, m.UnmarshalBinary(b)
}

var errPanicked = errors.New("go-amqp panicked")

// rhea, and with it the JavaScript SDK, writes the footer before the body.
func TestFooterBeforeTheBodyGoesBehindIt(t *testing.T) {
	const (
		properties = "\x00\x53\x73\x45"
		body       = "\x00\x53\x75\xa0\x01x"
		footer     = "\x00\x53\x78\xc1\x01\x00"
	)
	m, err := ParseMessage([]byte(properties + footer + body + body))
	if got, want := string(m.Append(nil)), properties+body+body+footer; err != nil || got != want {
		t.Errorf("written again as %x, %v, want %x", got, err, want)
	}
}
