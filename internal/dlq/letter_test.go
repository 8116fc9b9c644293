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
