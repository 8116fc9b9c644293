// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"bytes"
	"fmt"
	"maps"
	"testing"
	"time"

	"overdue/internal/amqp"
)

func TestPlacesAreReadHoweverTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Place{
		"orders":                   {Entity: "orders"},
		"/orders/":                 {Entity: "orders"},
		"orders/$DeadLetterQueue":  {Entity: "orders"},
		"orders/$deadletterqueue/": {Entity: "orders"},
		"events/Subscriptions/all": {"events", "all"},
		"events/subscriptions/all/$DeadLetterQueue": {"events", "all"},
		"a/b/subscriptions/all":                     {"a/b", "all"},
		"Subscriptions/all":                         {Entity: "Subscriptions/all"},
	} {
		if got, err := ParsePlace(text); got != want || err != nil {
			t.Errorf("ParsePlace(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// Purge goes by what is read here, so nothing is guessed.
func TestWhatNamesNoPlaceIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "/", "//orders", "orders//", "orders/$DeadLetterQueue/$DeadLetterQueue", "orders/$Transfer/$DeadLetterQueue", "orders/$management",
		"$cbs", "a/../b", "orders%2F", "orders ", "events/Subscriptions/all/Subscriptions/other", "events/Subscriptions/a/b", "sb://elsewhere/orders",
	} {
		if got, err := ParsePlace(text); err == nil {
			t.Errorf("ParsePlace(%q) = %+v, want an error", text, got)
		}
	}
}

// encodedLetter is a message with these annotations.
func encodedLetter(annotations func([]byte) ([]byte, int)) []byte {
	b, start := amqp.BeginMap(nil)
	b, n := annotations(b)
	return (&amqp.Message{MessageAnnotations: amqp.EndMap(b, start, n), Body: amqp.AppendData(nil, []byte("x"))}).Append(nil)
}

func TestALetterHasItsNumberAndItsSource(t *testing.T) {
	l, err := Parse(encodedLetter(func(b []byte) ([]byte, int) {
		b = amqp.AppendLong(amqp.AppendSymbol(b, "x-opt-sequence-number"), 7)
		return amqp.AppendString(amqp.AppendSymbol(b, "x-opt-deadletter-source"), "orders"), 2
	}))
	if err != nil || l.Number != 7 || l.Source != "orders" {
		t.Errorf("parse = %+v, %v, want number 7 from orders", l, err)
	}
	if l, err := Parse(encodedLetter(func(b []byte) ([]byte, int) {
		return amqp.AppendString(amqp.AppendSymbol(b, "x-opt-sequence-number"), "seven"), 1
	})); err == nil {
		t.Errorf("parse of a number in words = %+v, want an error", l)
	}
}

// Any sender may send such a message, and the broker accepts it. One such dead letter must not hide
// the others from an operator. A copy has all of its bytes, whether they can be decoded or not.
func TestALetterWithOddPropertiesIsReadAndHidesNoOther(t *testing.T) {
	play(t, func(s *scene) {
		links := s.links()
		sender, err := links.Sender(s.Context(), "orders")
		if err != nil {
			s.Fatal(err)
		}
		notASCII := amqp.Raw{0xa3, 2, 0xc3, 0xbc}
		odd := amqp.Map{{Key: notASCII, Value: "key"}, {Key: "symbol", Value: notASCII}, {Key: "char", Value: amqp.Raw{0x73, 0xff, 0xff, 0xff, 0xff}}, {Key: "plain", Value: "x"}}
		properties, err := amqp.AppendValue(nil, odd)
		if err != nil {
			s.Fatal(err)
		}
		taken := 0
		for i := range odd {
			one, err := amqp.AppendValue(nil, odd[i:i+1])
			if err != nil {
				s.Fatal(err)
			}
			m := amqp.Message{
				Header: amqp.Header{TTL: 1000, HasTTL: true}.Raw(), ApplicationProperties: one,
				Properties: (&amqp.Properties{ContentType: "text/ü"}).Raw(), Body: amqp.AppendValueSection(nil, notASCII),
			}
			if err := sender.Send(s.Context(), [][]byte{m.Append(nil)}, nil, nil); err != nil {
				s.Logf("refused, which is as well: %v: %v", odd[i], err)
				if sender, err = links.Sender(s.Context(), "orders"); err != nil {
					s.Fatal(err)
				}
				continue
			}
			taken++
		}
		if taken == 0 {
			s.Fatal("the broker has taken none")
		}
		s.dead(1)
		letters := s.letters(orders, everything)
		if len(letters) != taken+1 {
			s.Errorf("%d letters, want %d", len(letters), taken+1)
		}
		for _, l := range letters {
			if l.Reason != "TTLExpiredException" {
				s.Errorf("letter %d died for %q, want TTLExpiredException", l.Number, l.Reason)
			}
			_ = l.Body()
			if _, err := (&Copying{}).Encode(orders, l); err != nil {
				s.Errorf("copy of letter %d: %v", l.Number, err)
			}
		}

		// A broker may let in more than ours does.
		l, err := Parse((&amqp.Message{ApplicationProperties: properties}).Append(nil))
		if err != nil {
			s.Fatal(err)
		}
		copied, err := (&Copying{}).Encode(orders, l)
		if err != nil {
			s.Fatal(err)
		}
		if !bytes.Contains(copied, properties[3:]) { // behind what states its size
			s.Errorf("the copy %x lacks %x", copied, properties)
		}
		got := map[string]string{}
		for name, v := range l.Properties {
			got[name] = Text(v)
		}
		want := map[string]string{"ü": "key", "symbol": "ü", "char": "73ffffffff", "plain": "x"}
		if !maps.Equal(got, want) {
			s.Errorf("properties %v, want %v", got, want)
		}
	})
}

// A dead letter shows the time to live and the whole body that its sender set.
func TestALetterHasItsTimeToLiveAndItsWholeBody(t *testing.T) {
	m := amqp.Message{Header: amqp.Header{TTL: 2500, HasTTL: true}.Raw(), Body: amqp.AppendData(amqp.AppendData(nil, []byte("one")), []byte("two"))}
	l, err := Parse(m.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if want := 2500 * time.Millisecond; l.TimeToLive.Duration != want {
		t.Errorf("time to live = %v, want %v", l.TimeToLive, want)
	}
	if body := l.Body(); fmt.Sprintf("%s", body) != "onetwo" {
		t.Errorf("body = %s, %v, want onetwo", body, err)
	}
}

func TestALetterHasWhenItWasEnqueuedAndWhatItIsAbout(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 5, 0, time.UTC)
	subject := "about"
	notes, start := amqp.BeginMap(nil)
	notes = amqp.AppendTimestamp(amqp.AppendSymbol(notes, "x-opt-enqueued-time"), amqp.TimestampOf(at))
	m := amqp.Message{
		Header: amqp.Header{TTL: 1000, HasTTL: true}.Raw(), MessageAnnotations: amqp.EndMap(notes, start, 1),
		Properties: (&amqp.Properties{Subject: &subject}).Raw(), Body: amqp.AppendData(nil, nil),
	}
	l, err := Parse(m.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if !l.EnqueuedTime.Equal(at) || !l.Due.Equal(at.Add(time.Second)) || l.Subject != subject {
		t.Errorf("enqueued at %v, due at %v, about %q, want %v, one second later, and %q", l.EnqueuedTime, l.Due, l.Subject, at, subject)
	}
}

// A message that cannot be read is no letter: a copy would lack the unreadable part.
func TestAMalformedMessageIsNoLetter(t *testing.T) {
	text := amqp.Raw{0xc0, 3, 1, 0xa1, 0}  // a list of a string, where a header has a boolean
	truth := amqp.Raw{0xc0, 3, 1, 0x56, 1} // a list of a boolean, where properties have an id
	for name, m := range map[string]amqp.Message{
		"header":     {Header: text},
		"properties": {Properties: truth},
	} {
		m.Body = amqp.AppendData(nil, nil)
		if l, err := Parse(m.Append(nil)); err == nil {
			t.Errorf("parse of a message with malformed %s = %+v, want an error", name, l)
		}
		if _, err := (&Copying{}).Encode(orders, &Letter{message: m}); err == nil {
			t.Errorf("a message with malformed %s has a copy, want an error", name)
		}
	}
}
