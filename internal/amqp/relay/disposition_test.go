// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
	"overdue/internal/testing/pipenet"
)

// A sender that does not want to know the outcome any longer settles its delivery itself. The
// delivery is over then: its watcher hears so, and it takes no place among those that wait.
func TestADeliveryThatItsSenderSettlesIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held []*fakeHandler
		w := &fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			held = append(held, newFakeHandler(d, false))
			return held[len(held)-1], nil
		}}
		s := setup(t, func(c *Config) {
			watching(w)(c)
			c.MaxPending = 1
		})
		p := s.peer()
		p.attachSender("s", 0, "orders")
		p.expect("flow")
		s.ns.Net.Stall(pipenet.ToListener) // the namespace comes to no outcome
		for id := range uint32(3) {
			p.tryTransfer(0, id)
			p.write(0, &amqp.Disposition{Role: amqp.RoleSender, First: id, Last: id, Settled: true, State: amqp.Accepted{}}, nil)
			synctest.Wait()
			select {
			case outcome := <-held[id].outcome:
				if outcome != nil {
					t.Errorf("the watcher of delivery %d hears %v, want no outcome", id, outcome)
				}
			default:
				t.Errorf("the handler of delivery %d got no outcome", id)
			}
		}
		s.ns.Net.Resume(pipenet.ToListener)
		if got := p.came("end", "close", "detach"); len(got) != 0 {
			t.Errorf("got %q, want the deliveries to take no place", got)
		}
	})
}
