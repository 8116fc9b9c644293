// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
)

// A receiver may say how far a delivery has come before it says what became of it. The source hears
// of the outcome alone, once, and the delivery stays unsettled until then.
func TestReceivedIsNoOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		q := sc.echo.queue("q")
		q.put(encode("x"))
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		p.send(0, linkFlow(0, 0, 1), nil)
		tr := expect[*amqp.Transfer](p)
		say := func(st amqp.DeliveryState) {
			p.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID, Last: tr.DeliveryID, State: st}, nil)
			synctest.Wait()
		}
		say(&amqp.Received{SectionNumber: 1})
		say(&amqp.Received{SectionNumber: 2})
		if got := q.states(); len(got) != 0 {
			t.Errorf("the source got %q, want nothing yet", got)
		}
		say(amqp.Accepted{})
		if d := expect[*amqp.Disposition](p); !d.Settled || d.State != (amqp.Accepted{}) {
			t.Errorf("answer = %s, want settled as accepted", amqp.Trace(d, 0))
		}
		if got, want := q.states(), []string{"amqp.Accepted false"}; !slices.Equal(got, want) {
			t.Errorf("the source got %q, want %q", got, want)
		}
	})
}
