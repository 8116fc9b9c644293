// SPDX-License-Identifier: Apache-2.0

package link

import (
	"io"
	"testing"

	"overdue/internal/amqp"
)

// Whatever a peek brings is read or refused; it never takes the monitor down.
func FuzzParseMessage(f *testing.F) {
	annotations, err := amqp.AppendValue(nil, amqp.Map{{Key: amqp.Symbol("x-opt-sequence-number"), Value: int64(7)}})
	if err != nil {
		f.Fatal(err)
	}
	properties, err := amqp.AppendValue(nil, amqp.Map{{Key: "overdue-within", Value: "5s"}, {Key: "price", Value: amqp.Decimal64{1}}})
	if err != nil {
		f.Fatal(err)
	}
	whole := amqp.Message{Header: amqp.Header{TTL: 5000, HasTTL: true}.Raw(), MessageAnnotations: annotations, ApplicationProperties: properties}
	f.Add(whole.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if (m == nil) == (err == nil) {
			t.Fatalf("parseMessage = %v, %v; want a message or an error", m, err)
		}
		if m != nil && m.TimeToLive < 0 {
			t.Errorf("time to live %v", m.TimeToLive)
		}
	})
}

// Whatever a peer writes, the client gets frames as whole as they came, and what is said of credit and outcomes of deliveries
// that nobody has sent changes nothing.
func FuzzTap(f *testing.F) {
	f.Add(amqp.AppendFrame(nil, 3, &amqp.Disposition{Role: amqp.RoleReceiver, First: 0, Last: 9, Settled: true, State: amqp.Accepted{}}, nil), 7)
	f.Add(amqp.AppendFrame(nil, 3, &amqp.Flow{HasHandle: true, HasLinkCredit: true, LinkCredit: 1000, IncomingWindow: 5000}, nil), 1)
	f.Add(amqp.AppendFrame(nil, 3, &amqp.Detach{Closed: true}, nil), 1000)
	f.Fuzz(func(t *testing.T, b []byte, chunk int) {
		p := newTap(&stream{left: b, chunk: max(chunk, 1)}, "tapped")
		p.theirs, p.attached, p.named = bareLink{channel: 3}, true, true
		p.accepted, p.first, p.left = make([]bool, 2), 5, 2
		if out, err := io.ReadAll(p); err != nil || len(out) > len(b) {
			t.Fatalf("%d bytes for the client of %d, %v", len(out), len(b), err)
		}
		open := 0
		for _, done := range p.accepted {
			if !done {
				open++
			}
		}
		if p.left != open || p.err == nil { // it has ended
			t.Errorf("%d outcomes are awaited, want %d; error %v", p.left, open, p.err)
		}
	})
}
