// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"errors"
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
	// Encode anew all that we have an encoder for.
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
		if *section, err = Encode(r.Value()); err != nil || r.Err() != nil {
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
