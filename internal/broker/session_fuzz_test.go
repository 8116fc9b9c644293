// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"

	"overdue/internal/amqp"
)

// FuzzSessionFilter: whatever filter asks for a session, the answer has the same
// filter with a session that is granted, and everything else as it was.
func FuzzSessionFilter(f *testing.F) {
	for _, v := range []any{nil, "a", amqp.Symbol("a"), int32(1), amqp.Described{Descriptor: uint64(0x137000000C)},
		amqp.Described{Descriptor: amqp.Symbol(sessionFilter), Value: "a"}} {
		raw, err := amqp.AppendValue(nil, amqp.Map{{Key: "x", Value: "y"}, {Key: amqp.Symbol(sessionFilter), Value: v}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, filters []byte) {
		filter, ok := amqp.MapLookup(filters, sessionFilter)
		if !ok {
			return
		}
		_, named, refusal := wantedSession(filter.Raw())
		if refusal != nil || named {
			return
		}
		granted, err := grantSession(filters, "granted")
		if err != nil {
			return // the client gets an error
		}
		filter, ok = amqp.MapLookup(granted, sessionFilter)
		id, named, refusal := wantedSession(filter.Raw())
		if !ok || refusal != nil || !named || id != "granted" {
			t.Errorf("%x was granted as %x, which asks for %q, %v", filters, granted, id, refusal)
		}
		before, after := amqp.NewReader(filters), amqp.NewReader(granted)
		_, n := before.Map()
		if _, m := after.Map(); after.Err() != nil || n != m {
			t.Errorf("%x was granted as %x: %d filters, want %d, %v", filters, granted, m, n, after.Err())
		}
	})
}
