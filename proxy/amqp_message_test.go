// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/scheduler"
)

// sections cuts a message into its sections, each with its descriptor and verbatim, by the
// number of its kind.
func sections(t *testing.T, encoded []byte) map[uint64][][]byte {
	t.Helper()
	out := map[uint64][][]byte{}
	for r := amqp.NewReader(encoded); !r.Done(); {
		whole := r.Rest()
		code := r.Descriptor()
		r.Skip()
		if r.Err() != nil {
			t.Fatalf("message %x: %v", encoded, r.Err())
		}
		out[code] = append(out[code], whole[:len(whole)-r.Len()])
	}
	return out
}

// fieldsOf are the encoded fields of the list in a section; nil when there is none.
func fieldsOf(t *testing.T, section [][]byte) [][]byte {
	t.Helper()
	if section == nil {
		return nil
	}
	r := amqp.NewReader(section[0])
	r.Descriptor()
	fields, n := r.List()
	out := make([][]byte, n)
	for i := range out {
		out[i] = fields.Raw()
	}
	if fields.Err() != nil {
		t.Fatalf("section %x: %v", section[0], fields.Err())
	}
	return out
}

// checkCompleted fails the test unless got is sent with its TTL stamped and its missing id added,
// and nothing else. Every other section is the same byte for byte, and so is every other field of
// the two.
func checkCompleted(t *testing.T, sent, got []byte, stamp time.Duration) {
	t.Helper()
	if _, err := amqp.ParseMessage(got); err != nil {
		t.Fatalf("completed message cannot be read: %v\nsent %x\ngot  %x", err, sent, got)
	}
	before, after := sections(t, sent), sections(t, got)
	check := func(code uint64, field int, added bool, want func(amqp.Reader) bool) {
		t.Helper()
		old, now := fieldsOf(t, before[code]), fieldsOf(t, after[code])
		if !added {
			if !bytes.Equal(bytes.Join(before[code], nil), bytes.Join(after[code], nil)) {
				t.Errorf("section 0x%x: %x became %x, want it untouched", code, before[code], after[code])
			}
			return
		}
		for i := range max(len(old), field+1) {
			switch {
			case i >= len(now):
				t.Fatalf("section 0x%x has %d fields, want field %d", code, len(now), i)
			case i == field:
				if !want(amqp.NewReader(now[i])) {
					t.Errorf("section 0x%x, field %d: got %x", code, i, now[i])
				}
			case i < len(old) && !bytes.Equal(old[i], now[i]):
				t.Errorf("section 0x%x, field %d: %x became %x, want it untouched", code, i, old[i], now[i])
			case i >= len(old) && !bytes.Equal(now[i], []byte{0x40}):
				t.Errorf("section 0x%x, field %d: got %x, want null", code, i, now[i])
			}
		}
		if want := max(len(old), field+1); len(now) != want {
			t.Errorf("section 0x%x has %d fields, want %d", code, len(now), want)
		}
	}
	parsed, err := amqp.ParseMessage(sent)
	if err != nil {
		t.Fatal(err)
	}
	id, has := amqp.ListField(parsed.Properties, amqp.PropertyMessageID)
	named := has && amqp.IDText(id.Value()) != ""
	check(amqp.CodeHeader, amqp.HeaderTTL, stamp > 0, func(r amqp.Reader) bool {
		return time.Duration(r.Uint())*time.Millisecond == stamp && r.Err() == nil
	})
	check(amqp.CodeProperties, amqp.PropertyMessageID, !named, func(r amqp.Reader) bool {
		return r.String() != "" && r.Err() == nil
	})
	for code := range after {
		if code != amqp.CodeHeader && code != amqp.CodeProperties &&
			!bytes.Equal(bytes.Join(before[code], nil), bytes.Join(after[code], nil)) {
			t.Errorf("section 0x%x: %x became %x, want it untouched", code, before[code], after[code])
		}
	}
	for code := range before {
		if after[code] == nil {
			t.Errorf("section 0x%x is gone", code)
		}
	}
}

// giveID gives m an id, as for a companion that has to name it.
func giveID(m *message) {
	if m.ID == "" {
		m.GivenID = newMessageID()
	}
}

func complete(t *testing.T, sent []byte, stamp time.Duration) []byte {
	t.Helper()
	whole := bytes.Clone(sent)
	m, err := readMessage(sent)
	if err != nil {
		t.Fatalf("message %x: %v", sent, err)
	}
	m.Stamp = stamp
	giveID(m)
	got := completed(sent, 0, []*message{m})
	if !bytes.Equal(sent, whole) {
		t.Fatalf("the payload of the app was changed in place")
	}
	return got
}

func TestNothingButTheTimeToLiveAndAMissingIDChanges(t *testing.T) {
	w := seeded(t)
	for range 20_000 {
		sent := w.message()
		var stamp time.Duration
		if w.IntN(2) == 0 {
			stamp = time.Duration(1+w.IntN(1_000_000)) * time.Millisecond
		}
		checkCompleted(t, sent, complete(t, sent, stamp), stamp)
		if t.Failed() {
			t.Fatalf("message %x, stamp %v", sent, stamp)
		}
	}
}

func TestAMessageThatLacksNothingIsHandedOnAsItIs(t *testing.T) {
	sent, err := goamqp.NewMessage([]byte("hello")).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	named := complete(t, sent, 0)
	if again := complete(t, named, 0); &again[0] != &named[0] {
		t.Error("a message with an id and no stamp was copied, want the bytes it came in")
	}
}

func TestMessagesOfGoAMQPAreCompleted(t *testing.T) {
	id, subject := "m1", "subject"
	for name, m := range map[string]*goamqp.Message{
		"bare":        goamqp.NewMessage([]byte("hello")),
		"header":      {Header: &goamqp.MessageHeader{Durable: true, Priority: 7, TTL: time.Minute}, Data: [][]byte{[]byte("a"), []byte("b")}},
		"properties":  {Properties: &goamqp.MessageProperties{Subject: &subject, CorrelationID: uint64(7)}, Value: "v"},
		"named":       {Properties: &goamqp.MessageProperties{MessageID: id}, Value: []any{int32(1)}},
		"annotations": {Annotations: goamqp.Annotations{"x-opt-partition-key": "p"}, ApplicationProperties: map[string]any{"a": int64(1)}},
		"everything": {
			Header: &goamqp.MessageHeader{Priority: 1}, DeliveryAnnotations: goamqp.Annotations{"d": "1"},
			Annotations: goamqp.Annotations{"a": "1"}, Properties: &goamqp.MessageProperties{To: &id, ReplyTo: &id},
			ApplicationProperties: map[string]any{"x": time.Unix(1, 0)}, Data: [][]byte{make([]byte, 70_000)}, Footer: goamqp.Annotations{"f": "1"},
		},
	} {
		sent, err := m.MarshalBinary()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, stamp := range []time.Duration{0, time.Second} {
			got := complete(t, sent, stamp)
			checkCompleted(t, sent, got, stamp)
			var back goamqp.Message
			if err := back.UnmarshalBinary(got); err != nil {
				t.Errorf("%s: go-amqp cannot read the completed message: %v", name, err)
			} else if stamp > 0 && back.Header.TTL != stamp {
				t.Errorf("%s: go-amqp reads a TTL of %v, want %v", name, back.Header.TTL, stamp)
			}
		}
	}
}

// peerMessages are those that rhea and proton encode alike.
func peerMessages(t *testing.T) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("../internal/amqp/testdata/peers/corpus.golden")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(name, "message/") {
			continue
		}
		if out[name], err = hex.DecodeString(digits); err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 3 {
		t.Fatalf("%d messages of rhea and proton, want some", len(out))
	}
	return out
}

func TestMessagesOfRheaAndProtonAreCompleted(t *testing.T) {
	for name, sent := range peerMessages(t) {
		for _, stamp := range []time.Duration{0, time.Second} {
			checkCompleted(t, sent, complete(t, sent, stamp), stamp)
			if t.Failed() {
				t.Fatal(name)
			}
		}
	}
}

func TestABatchIsCompletedInPlace(t *testing.T) {
	w := seeded(t)
	for range 500 {
		envelope := w.pairs(w.descriptor(nil, 0x72, "amqp:message-annotations:map"), 0xa3)
		n := w.IntN(6)
		var sent [][]byte
		payload := bytes.Clone(envelope)
		for range n {
			m := w.message()
			sent = append(sent, m)
			payload = w.wide(w.descriptor(payload, 0x75, "amqp:data:binary"), 0xa0, m, 0)
		}
		whole := bytes.Clone(payload)
		ms, err := readPayload(payload, amqp.BatchMessageFormat)
		if err != nil || len(ms) != n {
			t.Fatalf("%d messages, %v, want %d", len(ms), err, n)
		}
		for _, m := range ms {
			giveID(m)
			if w.IntN(2) == 0 {
				m.Stamp = time.Second
			}
		}
		got := completed(payload, amqp.BatchMessageFormat, ms)
		if !bytes.Equal(payload, whole) {
			t.Fatal("the payload of the app was changed in place")
		}
		if !bytes.HasPrefix(got, envelope) {
			t.Fatalf("envelope %x became %x", envelope, got)
		}
		parsed, err := amqp.ParseMessage(got)
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for inner, err := range amqp.DataSections(parsed.Body) {
			if err != nil || i == n {
				t.Fatalf("message %d of %d: %v", i, n, err)
			}
			checkCompleted(t, sent[i], inner, ms[i].Stamp)
			i++
		}
		if i != n || t.Failed() {
			t.Fatalf("%d messages came out of %d", i, n)
		}
	}
}

func TestWhatASendHasToKnowIsRead(t *testing.T) {
	at := time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC)
	group := "s1"
	sent, err := (&goamqp.Message{
		Header:      &goamqp.MessageHeader{TTL: 90 * time.Second},
		Annotations: goamqp.Annotations{"x-opt-scheduled-enqueue-time": at},
		Properties:  &goamqp.MessageProperties{MessageID: goamqp.UUID{1, 2}, GroupID: &group},
		ApplicationProperties: map[string]any{
			"overdue-deadline": at.Add(time.Minute), "overdue-within": "30s", "ce-expirytime": int64(5),
		},
	}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	m, err := readMessage(sent)
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "01020000-0000-0000-0000-000000000000" || m.SessionID != group {
		t.Errorf("read id %q, session %q, want those of the message", m.ID, m.SessionID)
	}
	if m.TTL != 90*time.Second || !m.ScheduledEnqueueTime.Equal(at) {
		t.Errorf("read TTL %v, scheduled %v, want 90 s and %v", m.TTL, m.ScheduledEnqueueTime, at)
	}
	stated, _, err := scheduler.StatedDeadline(m.Property)
	if err != nil || !stated.Equal(at.Add(time.Minute)) {
		t.Errorf("states %v, %v, want %v", stated, err, at.Add(time.Minute))
	}
	if v := m.Property("ce-expirytime"); v != int64(5) {
		t.Errorf("ce-expirytime is read as %v, want it as it is", v)
	}
}

func TestALifetimeWithoutATimeToLiveIsNone(t *testing.T) {
	from := time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC)
	to := from.Add(time.Hour)
	sent, err := (&goamqp.Message{Properties: &goamqp.MessageProperties{CreationTime: &from, AbsoluteExpiryTime: &to}}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := readMessage(sent); err != nil || m.TTL != 0 {
		t.Errorf("read %v, %v, want no time to live, as in the broker", m, err)
	}
}

func TestMessagesThatCannotBeReadAreRefused(t *testing.T) {
	long := strings.Repeat("x", 129)
	encode := func(m *goamqp.Message) []byte {
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		payload []byte
		format  uint32
		want    string
	}{
		"no message":       {[]byte("hello"), 0, "cannot be read"},
		"a long id":        {encode(&goamqp.Message{Properties: &goamqp.MessageProperties{MessageID: long}}), 0, "message-id has 129"},
		"a long session":   {encode(&goamqp.Message{Properties: &goamqp.MessageProperties{GroupID: &long}}), 0, "group-id has 129"},
		"a schedule":       {encode(&goamqp.Message{Annotations: goamqp.Annotations{"x-opt-scheduled-enqueue-time": "soon"}}), 0, "want timestamp"},
		"a batch of none":  {encode(&goamqp.Message{Value: "v"}), amqp.BatchMessageFormat, "batch cannot be read"},
		"one of a batch":   {encode(&goamqp.Message{Data: [][]byte{encode(goamqp.NewMessage(nil)), []byte("x")}}), amqp.BatchMessageFormat, "Message 2 of the batch"},
		"a header of text": {[]byte{0x00, 0x53, 0x70, 0xc0, 0x05, 0x03, 0x40, 0x40, 0xa1, 0x00}, 0, "want uint"},
	} {
		_, err := readPayload(c.payload, c.format)
		if err == nil || !strings.Contains(sentenceOf(err), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzCompleted(f *testing.F) {
	f.Add([]byte{0x00, 0x53, 0x75, 0xa0, 0x01, 'x'}, uint32(0))
	f.Fuzz(func(t *testing.T, payload []byte, format uint32) {
		ms, err := readPayload(payload, format)
		if err != nil || len(ms) == 0 {
			return
		}
		for _, m := range ms {
			giveID(m)
			m.Stamp = time.Second
		}
		if got := completed(payload, format, ms); format != amqp.BatchMessageFormat {
			checkCompleted(t, payload, got, time.Second)
		} else if again, err := readPayload(got, format); err != nil || len(again) != len(ms) {
			t.Errorf("%d messages, %v, want %d again", len(again), err, len(ms))
		}
	})
}
