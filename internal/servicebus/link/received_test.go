// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/client"
)

// whole is a message with values of rare types beside what the monitor needs.
func whole(t testing.TB, annotations ...amqp.Pair) []byte {
	t.Helper()
	value := func(v any) amqp.Raw {
		raw, err := amqp.AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	odd := amqp.Pair{Key: "odd", Value: amqp.Decimal128{1}}
	m := amqp.Message{
		Header: amqp.Header{DeliveryCount: 3}.Raw(),
		MessageAnnotations: value(append(amqp.Map{
			{Key: amqp.Symbol("x-opt-sequence-number"), Value: int64(7)},
			{Key: amqp.Symbol("x-opt-enqueued-time"), Value: amqp.TimestampOf(time.Unix(1, 0))},
			{Key: amqp.Symbol("x-opt-locked-until"), Value: amqp.TimestampOf(time.Unix(9, 0))},
			{Key: amqp.Symbol("x-odd"), Value: amqp.Char('A')},
		}, annotations...)),
		Properties:            (&amqp.Properties{MessageID: "id", ContentType: "text/plain"}).Raw(),
		ApplicationProperties: value(amqp.Map{odd, {Key: "overdue-within", Value: "5s"}, {Key: "overdue-deadline", Value: amqp.Decimal32{1}}}),
		Body:                  amqp.AppendData(nil, make([]byte, 100_000)),
	}
	return m.Append(nil)
}

func TestAReceivedMessageShowsWhatTheMonitorNeeds(t *testing.T) {
	encoded := whole(t)
	for _, bare := range []bool{true, false} {
		payload := encoded
		if bare {
			payload = payload[:10_000]
		}
		m := newReceived(&client.Delivery{Payload: payload, Tag: []byte("0123456789abcdef")}, bare)
		if m.DeliveryCount != 3 || m.SequenceNumber != 7 || !m.EnqueuedTime.Equal(time.Unix(1, 0)) || m.MessageID != "id" || m.ContentType != "text/plain" ||
			!m.LockedUntil.Equal(time.Unix(9, 0)) || m.Properties["overdue-within"] != "5s" || m.LockToken == (Lock{}) {
			t.Errorf("bare %v: %+v", bare, m)
		}
		if n := len(m.Body()); (n == 100_000) == bare || (m.Encoded == nil) != bare {
			t.Errorf("bare %v: %d bytes of body, %d encoded", bare, n, len(m.Encoded))
		}
	}
}

// The number stands in front, so it comes through whatever follows.
func TestAReceivedMessageThatCannotBeRead(t *testing.T) {
	full := whole(t)
	for cut := range 300 {
		m := newReceived(&client.Delivery{Payload: full[:cut]}, true)
		if m.SequenceNumber != 0 && m.SequenceNumber != 7 {
			t.Errorf("cut at %d: number %d", cut, m.SequenceNumber)
		}
	}
}

func FuzzReceived(f *testing.F) {
	f.Add(whole(f), []byte("0123456789abcdef"))
	f.Add([]byte("AMQP\x00\x01\x00\x00HTTP/1.1 400 Bad Request"), []byte{1})
	f.Fuzz(func(t *testing.T, b, tag []byte) {
		m := newReceived(&client.Delivery{Payload: b, Tag: tag}, false)
		if m.TimeToLive < 0 || len(m.Body()) > len(b) {
			t.Errorf("%+v", m)
		}
	})
}
