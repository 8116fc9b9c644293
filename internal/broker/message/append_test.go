// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"testing"
	"time"

	sdk "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// stored is a message as a queue keeps it.
func stored(t testing.TB, m *sdk.Message) queue.View {
	t.Helper()
	q, err := Read(encode(t, m))
	if err != nil {
		t.Fatal(err)
	}
	return queue.View{Message: q, SequenceNumber: 7, EnqueuedTime: time.UnixMilli(1000).UTC()}
}

// shown is what a client that knows nothing of our codec reads of v.
func shown(t testing.TB, v queue.View, o Overlay) *sdk.Message {
	t.Helper()
	b, err := Append(nil, &v, o)
	if err != nil {
		t.Fatal(err)
	}
	var m sdk.Message
	if err := m.UnmarshalBinary(b); err != nil {
		t.Fatalf("go-amqp cannot read %x: %v", b, err)
	}
	return &m
}

func TestOverlayStatesWhatTheBrokerKnows(t *testing.T) {
	v := stored(t, &sdk.Message{
		Header:              &sdk.MessageHeader{Durable: true, Priority: 9, DeliveryCount: 99, FirstAcquirer: true},
		DeliveryAnnotations: sdk.Annotations{"x-hop": "kept", AnnLockToken: sdk.UUID{9}},
		Annotations:         sdk.Annotations{"x-mine": "kept", AnnSequenceNumber: int64(1), AnnDeadLetterSource: "lie"},
		Properties:          &sdk.MessageProperties{MessageID: "id", Subject: new("subject")},
		ApplicationProperties: map[string]any{
			"k": "v",
		},
		Data:   [][]byte{[]byte("body")},
		Footer: sdk.Annotations{"x-foot": "kept"},
	})
	v.DeliveryCount, v.State = 3, queue.Deferred
	until := time.UnixMilli(61_000).UTC()
	token := queue.LockToken{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	got := shown(t, v, Overlay{Lock: token, Until: until})
	want := &sdk.Message{
		Header:              &sdk.MessageHeader{Durable: true, Priority: 9, DeliveryCount: 3, FirstAcquirer: true},
		DeliveryAnnotations: sdk.Annotations{"x-hop": "kept", AnnLockToken: sdk.UUID(token)},
		Annotations: sdk.Annotations{
			"x-mine": "kept", AnnSequenceNumber: int64(7), AnnEnqueuedTime: v.EnqueuedTime,
			AnnMessageState: int32(1), AnnLockedUntil: until,
		},
		Properties:            &sdk.MessageProperties{MessageID: "id", Subject: new("subject")},
		ApplicationProperties: map[string]any{"k": "v"},
		Data:                  [][]byte{[]byte("body")},
		Footer:                sdk.Annotations{"x-foot": "kept"},
	}
	if diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && f.Name()[0] >= 'a'
	}, cmp.Ignore())); diff != "" {
		t.Errorf("delivered message (-want +got):\n%s", diff)
	}
}

func TestANullScheduledTimeIsNotHandedOn(t *testing.T) {
	v := stored(t, &sdk.Message{Annotations: sdk.Annotations{AnnScheduledEnqueueTime: nil, "x-mine": nil}})
	got := shown(t, v, Overlay{}).Annotations
	if _, has := got[AnnScheduledEnqueueTime]; has {
		t.Errorf("annotations = %v: the Go SDK panics at a scheduled time of null", got)
	}
	if _, has := got["x-mine"]; !has {
		t.Errorf("annotations = %v, want the sender's others", got)
	}
}

func TestBytesThatTheBrokerDoesNotStateStayAsTheyWere(t *testing.T) {
	// Wide encodings and a symbolic section name, as another library may choose.
	body := []byte{0x00, 0xa3, 0x10}
	body = append(body, "amqp:data:binary"...)
	body = append(body, 0xb0, 0, 0, 0, 1, 'x')
	props := []byte{0x00, 0x53, 0x74, 0xd1, 0, 0, 0, 14, 0, 0, 0, 2, 0xb1, 0, 0, 0, 1, 'k', 0x71, 0, 0, 0}
	props = append(props, 1)
	props[7] = byte(len(props) - 8)
	v := queue.View{SequenceNumber: 1}
	var refusal *amqp.Error
	if v.Message, refusal = Read(append(append([]byte(nil), props...), body...)); refusal != nil {
		t.Fatal(refusal)
	}
	got, err := Append(nil, &v, Overlay{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(got, props[3:]) || !bytes.HasSuffix(got, body) {
		t.Errorf("got %x, want it to hold %x and to end in %x", got, props[3:], body)
	}
}

func TestTimeToLiveIsShownAsTheServiceShowsIt(t *testing.T) {
	own, none := stored(t, &sdk.Message{Header: &sdk.MessageHeader{TTL: time.Minute}}), stored(t, &sdk.Message{})
	none.EntityTTL = true
	for name, tc := range map[string]struct {
		v    queue.View
		ttl  time.Duration // as the queue has capped it
		o    Overlay
		want time.Duration
	}{
		"own, received":            {own, time.Minute, Overlay{}, time.Minute},
		"own, peeked":              {own, time.Minute, Overlay{Peeked: true}, time.Minute},
		"capped, received":         {own, time.Second, Overlay{}, time.Second},
		"capped, peeked":           {own, time.Second, Overlay{Peeked: true}, time.Second},
		"the entity's, received":   {none, time.Hour, Overlay{}, time.Hour},
		"the entity's, peeked":     {none, time.Hour, Overlay{Peeked: true}, 0},
		"none":                     {none, 0, Overlay{}, 0},
		"more than a header holds": {none, 100 * 24 * time.Hour, Overlay{}, (1<<32 - 1) * time.Millisecond},
	} {
		tc.v.TTL, tc.v.ExpiresAt = tc.ttl, tc.v.EnqueuedTime.Add(tc.ttl)
		got := shown(t, tc.v, tc.o)
		if got.Header.TTL != tc.want {
			t.Errorf("%s: ttl = %v, want %v", name, got.Header.TTL, tc.want)
		}
		if made := got.Properties != nil && got.Properties.CreationTime != nil; made != (tc.ttl > tc.want && tc.want > 0) || made && got.Properties.AbsoluteExpiryTime.Sub(*got.Properties.CreationTime) != tc.ttl {
			t.Errorf("%s: properties = %+v, want a life of %v there if and only if the header cannot hold it", name, got.Properties, tc.ttl)
		}
		stated := got.Properties != nil && got.Properties.AbsoluteExpiryTime != nil
		if stated != (tc.want > 0) || stated && !got.Properties.AbsoluteExpiryTime.Equal(tc.v.ExpiresAt) {
			t.Errorf("%s: properties = %+v, want the end of life there if and only if there is one", name, got.Properties)
		}
	}
}

func TestTheSendersWordOnExpiryIsReplacedAndTheRestKept(t *testing.T) {
	wrong, made := time.UnixMilli(5).UTC(), time.UnixMilli(1).UTC()
	v := stored(t, &sdk.Message{
		Header: &sdk.MessageHeader{TTL: time.Minute},
		Properties: &sdk.MessageProperties{
			MessageID: "id", AbsoluteExpiryTime: &wrong, CreationTime: &made, GroupID: new("group"), ReplyToGroupID: new("reply"),
		},
	})
	v.ExpiresAt = v.EnqueuedTime.Add(time.Minute)
	p := shown(t, v, Overlay{}).Properties
	if !p.AbsoluteExpiryTime.Equal(v.ExpiresAt) || !p.CreationTime.Equal(v.EnqueuedTime) || p.MessageID != "id" || *p.GroupID != "group" || *p.ReplyToGroupID != "reply" {
		t.Errorf("properties = %+v, want only absolute-expiry-time changed, and creation-time a minute before it", p)
	}
}

func TestAMessageWithoutANameGetsOneThatStays(t *testing.T) {
	for name, m := range map[string]*sdk.Message{
		"no properties":     {},
		"no message-id":     {Properties: &sdk.MessageProperties{Subject: new("s")}},
		"with time to live": {Header: &sdk.MessageHeader{TTL: time.Minute}},
	} {
		v := stored(t, m)
		v.ExpiresAt = v.EnqueuedTime.Add(v.TTL)
		p := shown(t, v, Overlay{}).Properties
		id, _ := p.MessageID.(string)
		if len(id) != 32 || id != v.MessageID {
			t.Errorf("%s: message-id = %v, want %q, a GUID", name, p.MessageID, v.MessageID)
		}
		if again := shown(t, v, Overlay{Peeked: true}).Properties.MessageID; again != id {
			t.Errorf("%s: message-id = %v when peeked, want %v", name, again, id)
		}
		if m.Properties != nil && (p.Subject == nil || *p.Subject != "s") {
			t.Errorf("%s: properties = %+v, want the subject kept", name, p)
		}
		if stored(t, m).MessageID == id {
			t.Errorf("%s: two messages got the name %s", name, id)
		}
	}
	empty := shown(t, stored(t, &sdk.Message{Properties: &sdk.MessageProperties{MessageID: ""}}), Overlay{})
	if got := empty.Properties.MessageID; got != "" {
		t.Errorf("message-id = %v, want the empty one that the sender gave", got)
	}
}

func TestSettlementsShowInApplicationProperties(t *testing.T) {
	v := stored(t, &sdk.Message{ApplicationProperties: map[string]any{"old": int32(1), "kept": true}})
	v.Properties = []queue.Property{{Key: "old", Value: "2"}, {Key: "new", Value: int64(3)}}
	v.DeadLetterReason, v.DeadLetterErrorDescription = "Reason", "A sentence."
	want := map[string]any{
		"old": "2", "kept": true, "new": int64(3),
		"DeadLetterReason": "Reason", "DeadLetterErrorDescription": "A sentence.",
	}
	if diff := cmp.Diff(want, shown(t, v, Overlay{}).ApplicationProperties); diff != "" {
		t.Errorf("application properties (-want +got):\n%s", diff)
	}
}

func TestAReasonOfTheClientAndOneOfTheBrokerAreNotBothShown(t *testing.T) {
	v := stored(t, sdk.NewMessage(nil))
	v.Properties = []queue.Property{{Key: PropDeadLetterReason, Value: "Early"}, {Key: PropDeadLetterDescription, Value: "Early."}}
	v.DeadLetterReason = "Late"
	b, err := Append(nil, &v, Overlay{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := amqp.ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	r := amqp.NewReader(m.ApplicationProperties)
	want := amqp.Map{{Key: PropDeadLetterDescription, Value: "Early."}, {Key: PropDeadLetterReason, Value: "Late"}}
	if diff := cmp.Diff(any(want), r.Value()); diff != "" {
		t.Errorf("application properties (-want +got):\n%s", diff)
	}
}

func TestAMessageResentKeepsNoTraceOfItsFirstLife(t *testing.T) {
	v := stored(t, sdk.NewMessage([]byte("x")))
	first := shown(t, v, Overlay{Lock: queue.LockToken{1}, Until: time.UnixMilli(1)})
	again := stored(t, first)
	again.SequenceNumber = 8
	got := shown(t, again, Overlay{Peeked: true})
	if _, locked := got.Annotations[AnnLockedUntil]; locked || got.Annotations[AnnSequenceNumber] != int64(8) || len(got.DeliveryAnnotations) != 0 {
		t.Errorf("annotations %v and %v, want those of the second life only", got.Annotations, got.DeliveryAnnotations)
	}
}

func TestABodyCanBeLeftOut(t *testing.T) {
	v := stored(t, sdk.NewMessage([]byte("large")))
	if got := shown(t, v, Overlay{OmitBody: true}).Data; got != nil {
		t.Errorf("body = %q, want no section for one", got)
	}
}

func TestTagIsTheTokenInTheByteOrderOfDotNet(t *testing.T) {
	// 00112233-4455-6677-8899-aabbccddeeff
	token := queue.LockToken{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	want := [16]byte{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	if got := Tag(token); got != want {
		t.Errorf("tag = %x, want %x", got, want)
	}
}

func BenchmarkIngest(b *testing.B) {
	encoded := encode(b, &sdk.Message{
		Header:                &sdk.MessageHeader{TTL: time.Minute},
		Properties:            &sdk.MessageProperties{MessageID: "8c1b4c0e-2b39-4a6c-9ad4-0f6f5e1f3f11"},
		ApplicationProperties: map[string]any{"k": "v"},
		Data:                  [][]byte{make([]byte, 1024)},
	})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOverlay(b *testing.B) {
	v := stored(b, &sdk.Message{
		Header:                &sdk.MessageHeader{TTL: time.Minute},
		Properties:            &sdk.MessageProperties{MessageID: "8c1b4c0e-2b39-4a6c-9ad4-0f6f5e1f3f11"},
		ApplicationProperties: map[string]any{"k": "v"},
		Data:                  [][]byte{make([]byte, 1024)},
	})
	v.ExpiresAt = v.EnqueuedTime.Add(time.Minute)
	o := Overlay{Lock: queue.LockToken{1}, Until: v.ExpiresAt}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = Append(buf[:0], &v, o); err != nil {
			b.Fatal(err)
		}
	}
}
