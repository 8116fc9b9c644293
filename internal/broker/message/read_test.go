// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
)

// encode encodes a message with go-amqp, which knows nothing of our codec.
func encode(t testing.TB, m *sdk.Message) []byte {
	t.Helper()
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTimeToLiveIsReadFromHeaderFirst(t *testing.T) {
	made := time.Unix(1_700_000_000, 0)
	ends := made.Add(time.Minute)
	long, saturated := made.Add(100*24*time.Hour), &sdk.MessageHeader{TTL: amqp.MaxTTL}
	both := &sdk.MessageProperties{CreationTime: &made, AbsoluteExpiryTime: &ends}
	tests := []struct {
		name string
		m    *sdk.Message
		want time.Duration
	}{
		{"none", &sdk.Message{}, 0},
		{"header", &sdk.Message{Header: &sdk.MessageHeader{TTL: time.Hour}}, time.Hour},
		{"header and properties", &sdk.Message{Header: &sdk.MessageHeader{TTL: time.Hour}, Properties: both}, time.Hour},
		{"properties", &sdk.Message{Properties: both}, 0},
		{"no creation time", &sdk.Message{Properties: &sdk.MessageProperties{AbsoluteExpiryTime: &ends}}, 0},
		{"ends before it begins", &sdk.Message{Properties: &sdk.MessageProperties{CreationTime: &ends, AbsoluteExpiryTime: &made}}, 0},
		{"saturated header", &sdk.Message{Header: saturated}, amqp.MaxTTL},
		{"saturated header and a longer life", &sdk.Message{Header: saturated, Properties: &sdk.MessageProperties{CreationTime: &made, AbsoluteExpiryTime: &long}}, 100 * 24 * time.Hour},
		{"saturated header and a shorter life", &sdk.Message{Header: saturated, Properties: both}, amqp.MaxTTL},
	}
	for _, tc := range tests {
		got, err := Read(encode(t, tc.m))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got.TTL != tc.want {
			t.Errorf("%s: time to live = %v, want %v", tc.name, got.TTL, tc.want)
		}
	}
}

func TestIdentifiersOfEveryTypeAreRead(t *testing.T) {
	for _, tc := range []struct {
		id   any
		want string
	}{
		{"id", "id"},
		{uint64(42), "42"},
		{sdk.UUID{0xab, 15: 1}, "ab000000-0000-0000-0000-000000000001"},
		{[]byte("bin"), "bin"},
		{strings.Repeat("ä", MaxIDLength), strings.Repeat("ä", MaxIDLength)},
	} {
		got, err := Read(encode(t, &sdk.Message{Properties: &sdk.MessageProperties{MessageID: tc.id, GroupID: new("s")}}))
		if err != nil {
			t.Errorf("message-id %v: %v", tc.id, err)
		}
		if got.MessageID != tc.want || got.SessionID != "s" {
			t.Errorf("message-id %v: got %q, session %q; want %q, session s", tc.id, got.MessageID, got.SessionID, tc.want)
		}
	}
}

// A partition key of any type is kept as the string that clients want to receive. The Python SDK
// sends a received one back as binary.
func TestAPartitionKeyIsAStringHoweverItCame(t *testing.T) {
	raw := func(v any) []byte {
		b, err := amqp.AppendValue(amqp.AppendDescriptor(nil, amqp.CodeMessageAnnotations), amqp.Map{
			{Key: amqp.Symbol("x-opt-before"), Value: int64(1)},
			{Key: amqp.Symbol(AnnPartitionKey), Value: v},
			{Key: amqp.Symbol(AnnViaPartitionKey), Value: v},
			{Key: amqp.Symbol(AnnSequenceNumber), Value: int64(7)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return amqp.AppendData(b, []byte("x"))
	}
	for _, v := range []any{"kä", amqp.Symbol("k"), []byte("kä"), nil} {
		want := ""
		switch v := v.(type) {
		case string:
			want = v
		case amqp.Symbol:
			want = string(v)
		case []byte:
			want = string(v)
		}
		got, refusal := Read(raw(v))
		if refusal != nil {
			t.Errorf("a partition key %#v: %v", v, refusal)
			continue
		}
		if got.PartitionKey != want || PartitionKey(got.Body) != want {
			t.Errorf("a partition key %#v is %q, in the message %q; want %q", v, got.PartitionKey, PartitionKey(got.Body), want)
		}
		m, _ := amqp.ParseMessage(got.Body)
		r := amqp.NewReader(m.MessageAnnotations)
		kept := any(want)
		if v == nil {
			kept = nil
		}
		if diff := cmp.Diff(amqp.Map{
			{Key: amqp.Symbol("x-opt-before"), Value: int64(1)},
			{Key: amqp.Symbol(AnnPartitionKey), Value: kept}, {Key: amqp.Symbol(AnnViaPartitionKey), Value: kept},
		}, r.Value()); diff != "" {
			t.Errorf("annotations kept of %#v (-want +got):\n%s", v, diff)
		}
		if string(m.Body) != string(amqp.AppendData(nil, []byte("x"))) {
			t.Errorf("the body became %x", m.Body)
		}
	}
	for _, v := range []any{int64(1), []byte{0xff}, amqp.List{}, strings.Repeat("k", MaxIDLength+1)} {
		if _, refusal := Read(raw(v)); refusal == nil || refusal.Condition != amqp.ErrCondNotAllowed {
			t.Errorf("a partition key %.20v: %v, want not-allowed", v, refusal)
		}
	}
}

func TestScheduledEnqueueTimeIsReadFromTheAnnotation(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	got, err := Read(encode(t, &sdk.Message{Annotations: sdk.Annotations{AnnScheduledEnqueueTime: at}}))
	if err != nil || !got.ScheduledEnqueueTime.Equal(at) {
		t.Errorf("scheduled for %v, %v; want %v", got.ScheduledEnqueueTime, err, at)
	}
	got, err = Read(encode(t, &sdk.Message{DeliveryAnnotations: sdk.Annotations{AnnScheduledEnqueueTime: at}}))
	if err != nil || !got.ScheduledEnqueueTime.IsZero() {
		t.Errorf("by a delivery annotation: scheduled for %v, %v; want no schedule", got.ScheduledEnqueueTime, err)
	}
}

func TestMessagesThatClientsWouldChokeOnAreRefused(t *testing.T) {
	section := func(code uint64, v any) []byte {
		b, err := amqp.AppendValue(amqp.AppendDescriptor(nil, code), v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	annotated := func(k, v any) []byte {
		return section(amqp.CodeMessageAnnotations, amqp.Map{{Key: k, Value: v}})
	}
	long, half := strings.Repeat("x", MaxIDLength+1), strings.Repeat("x", MaxPropertySize-10)
	for name, b := range map[string][]byte{
		"no message":                 {0xff},
		"scheduled time of no time":  annotated(amqp.Symbol(AnnScheduledEnqueueTime), int64(1)),
		"partition key of no string": annotated(amqp.Symbol(AnnPartitionKey), int64(1)),
		"partition key too long":     annotated(amqp.Symbol(AnnPartitionKey), long),
		"annotation under a list":    annotated(amqp.List{int64(1)}, "x"),
		"footer under a list":        section(amqp.CodeFooter, amqp.Map{{Key: amqp.List{int64(1)}, Value: "x"}}),
		"property under a number":    section(amqp.CodeApplicationProperties, amqp.Map{{Key: int64(1), Value: "x"}}),
		"message-id of no id":        section(amqp.CodeProperties, amqp.List{true}),
		"message-id too long":        section(amqp.CodeProperties, amqp.List{long}),
		"session-id too long":        section(amqp.CodeProperties, amqp.List{nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, long}),
		"a property too large":       section(amqp.CodeApplicationProperties, amqp.Map{{Key: "k", Value: strings.Repeat("x", MaxPropertySize)}}),
		"a binary too large":         section(amqp.CodeApplicationProperties, amqp.Map{{Key: "k", Value: make([]byte, MaxPropertySize)}}),
		"properties too large": section(amqp.CodeApplicationProperties, amqp.Map{
			{Key: "a", Value: half}, {Key: "b", Value: half}, {Key: "c", Value: half[:100]},
		}),
		"annotations too large":   annotated(amqp.Symbol("x"), strings.Repeat("x", MaxHeaderSize)),
		"subject of no string":    section(amqp.CodeProperties, amqp.List{nil, nil, nil, int64(1)}),
		"map under a list within": annotated(amqp.Symbol("x"), amqp.Map{{Key: amqp.List{}, Value: "x"}}),
		"the same in a property":  section(amqp.CodeApplicationProperties, amqp.Map{{Key: "k", Value: amqp.Map{{Key: amqp.List{}, Value: "x"}}}}),
		"property not in UTF-8":   {0x00, 0x53, 0x74, 0xc1, 0x07, 0x02, 0xa1, 0x01, 'k', 0xa1, 0x01, 0xff},
		"name not in UTF-8":       {0x00, 0x53, 0x74, 0xc1, 0x07, 0x02, 0xa1, 0x01, 0xff, 0xa1, 0x01, 'v'},
		// A map of 5 bytes with one pair, of which the value is cut off.
		"half a pair":     {0x00, 0x53, 0x74, 0xc1, 0x05, 0x02, 0xa1, 0x01, 'k', 0xa1},
		"bytes left over": {0x00, 0x53, 0x72, 0xc1, 0x02, 0x00, 0x40},
	} {
		if _, err := Read(b); err == nil {
			t.Errorf("%s: ingest(%x) took it", name, b)
		} else if err.Condition != amqp.ErrCondNotAllowed || err.Description == "" {
			t.Errorf("%s: refused with %v, want not-allowed and a sentence", name, err)
		}
	}
}

func TestPropertiesUpToTheBoundsAreTaken(t *testing.T) {
	most := strings.Repeat("x", MaxPropertySize-5) // a string of that length has five bytes more
	m := &sdk.Message{ApplicationProperties: map[string]any{"a": most, "b": most[:len(most)-50]}}
	if _, err := Read(encode(t, m)); err != nil {
		t.Errorf("properties of nearly %d bytes: %v", MaxHeaderSize, err)
	}
}

func TestABatchIsReadWholeOrNotAtAll(t *testing.T) {
	good := encode(t, sdk.NewMessage([]byte("good")))
	batch := func(inner ...[]byte) []byte {
		var b []byte
		for _, m := range inner {
			b = amqp.AppendData(b, m)
		}
		return b
	}
	got, err := ReadBatch(batch(good, good))
	if err != nil || len(got) != 2 || !bytes.Equal(got[1].Body, good) {
		t.Errorf("two messages: got %d, %v", len(got), err)
	}
	// No count bounds a batch, only its bytes: CHANGELOG of Azure.Messaging.ServiceBus, 7.20.2.
	if got, err := ReadBatch(batch(slices.Repeat([][]byte{good}, 5000)...)); err != nil || len(got) != 5000 {
		t.Errorf("5000 messages: got %d, %v", len(got), err)
	}
	for name, b := range map[string][]byte{
		"second message is bad": batch(good, []byte{0xff}),
		"no message":            batch(),
		"a value body":          encode(t, &sdk.Message{Value: "x"}),
	} {
		if got, err := ReadBatch(b); err == nil {
			t.Errorf("%s: took %d messages", name, len(got))
		}
	}
}
