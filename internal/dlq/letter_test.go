// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/amqp"
)

func TestPlacesAreReadHoweverTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Place{
		"orders":                   {Entity: "orders"},
		"/orders/":                 {Entity: "orders"},
		"orders/$DeadLetterQueue":  {Entity: "orders"},
		"orders/$deadletterqueue":  {Entity: "orders"},
		"events/Subscriptions/all": {"events", "all"},
		"events/subscriptions/all/$DeadLetterQueue":    {"events", "all"},
		"a/b/subscriptions/all":                        {"a/b", "all"},
		"Subscriptions/all":                            {Entity: "Subscriptions/all"},
		"events/Subscriptions/all/Subscriptions/other": {"events/Subscriptions/all", "other"},
	} {
		if got := ParsePlace(text); got != want {
			t.Errorf("ParsePlace(%q) = %+v, want %+v", text, got, want)
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
	l, err := parse(encodedLetter(func(b []byte) ([]byte, int) {
		b = amqp.AppendLong(amqp.AppendSymbol(b, "x-opt-sequence-number"), 7)
		return amqp.AppendString(amqp.AppendSymbol(b, "x-opt-deadletter-source"), "orders"), 2
	}))
	if err != nil || l.Number != 7 || l.Source != "orders" {
		t.Errorf("parse = %+v, %v, want number 7 from orders", l, err)
	}
	if l, err := parse(encodedLetter(func(b []byte) ([]byte, int) {
		return amqp.AppendString(amqp.AppendSymbol(b, "x-opt-sequence-number"), "seven"), 1
	})); err == nil {
		t.Errorf("parse of a number in words = %+v, want an error", l)
	}
}

// What a letter shows of its time to live and its body is what its sender has given it.
func TestALetterHasItsTimeToLiveAndItsWholeBody(t *testing.T) {
	m := amqp.Message{Header: amqp.Header{TTL: 2500, HasTTL: true}.Raw(), Body: amqp.AppendData(amqp.AppendData(nil, []byte("one")), []byte("two"))}
	l, err := parse(m.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if want := 2500 * time.Millisecond; l.TimeToLive != want {
		t.Errorf("time to live = %v, want %v", l.TimeToLive, want)
	}
	if body, err := l.Body(); err != nil || fmt.Sprintf("%s", body) != "onetwo" {
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
	l, err := parse(m.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if !l.EnqueuedTime.Equal(at) || !l.Due.Equal(at.Add(time.Second)) || l.Subject != subject {
		t.Errorf("enqueued at %v, due at %v, about %q, want %v, one second later, and %q", l.EnqueuedTime, l.Due, l.Subject, at, subject)
	}
}

// What cannot be read is no letter: a copy of it would lack what could not be read.
func TestAMalformedMessageIsNoLetter(t *testing.T) {
	text := amqp.Raw{0xc0, 3, 1, 0xa1, 0}              // a list of a string, where a header has a boolean
	truth := amqp.Raw{0xc0, 3, 1, 0x56, 1}             // a list of a boolean, where properties have an id
	pairs := amqp.Raw{0xc1, 5, 2, 0xa1, 1, 0xff, 0x40} // a key that is not UTF-8
	for name, m := range map[string]amqp.Message{
		"header":                 {Header: text},
		"properties":             {Properties: truth},
		"application properties": {ApplicationProperties: pairs},
	} {
		m.Body = amqp.AppendData(nil, nil)
		if l, err := parse(m.Append(nil)); err == nil {
			t.Errorf("parse of a message with malformed %s = %+v, want an error", name, l)
		}
		if _, err := (Copying{}).of(orders, &Letter{message: m}); err == nil && m.ApplicationProperties == nil {
			t.Errorf("a message with malformed %s has a copy, want an error", name)
		}
	}
}
