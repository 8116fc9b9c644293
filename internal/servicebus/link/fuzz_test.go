// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"

	"overdue/internal/amqp"
)

// Any message of a peek is read or refused; it never takes the monitor down.
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
