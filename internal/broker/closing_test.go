// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// The processors of the Java SDK detach with a credit open, so a message sent meanwhile goes to a
// link that nobody reads. The broker cannot tell it from one that is being worked on: it may be
// settled by its token until the lock lapses, as one whose link was lost.
func TestALockOutlivesItsLink(t *testing.T) {
	const lock = 5 * time.Second
	configure := func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "q", LockDuration: lock}} }
	bubble(t, configure, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		r.attach(1, amqp.RoleReceiver, "q")
		r.credit(1, 0)
		r.sent(0, amqp.AppendData(nil, []byte("x")))
		began := time.Now()
		r.message()
		r.send(&amqp.Detach{Handle: 1, Closed: true}, nil)
		await[*amqp.Detach](r)
		r.attach(2, amqp.RoleReceiver, "q")
		_, m := r.delivery(2, 0)
		if h, err := amqp.DecodeHeader(m.Header); err != nil || h.DeliveryCount != 1 {
			t.Errorf("delivered again with the count %d, %v; want 1", h.DeliveryCount, err)
		}
		if waited := time.Since(began); waited < lock || waited > lock+time.Second {
			t.Errorf("delivered again after %v, want the lock duration of %v", waited, lock)
		}
	})
}

// A message that has not left the broker when the detach comes was never delivered.
func TestWhatALinkWasNotSentIsFreeWhenItCloses(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		for i := range 5 {
			r.sent(0, amqp.AppendData(nil, fmt.Append(nil, i)))
		}
		r.attach(1, amqp.RoleReceiver, "q")
		// Credit for all of them, and a window for two.
		r.send(&amqp.Flow{
			HasNextIncomingID: true, NextIncomingID: 1, IncomingWindow: 2, OutgoingWindow: 1000, HasHandle: true, Handle: 1,
			HasDeliveryCount: true, LinkCredit: 5, HasLinkCredit: true,
		}, nil)
		r.message()
		r.message()
		r.send(&amqp.Detach{Handle: 1, Closed: true}, nil)
		await[*amqp.Detach](r)
		began := time.Now()
		r.attach(2, amqp.RoleReceiver, "q")
		r.send(&amqp.Flow{
			HasNextIncomingID: true, NextIncomingID: 3, IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: 2,
			HasDeliveryCount: true, LinkCredit: 3, HasLinkCredit: true,
		}, nil)
		for i := range 3 {
			_, m := r.message()
			h, err := amqp.DecodeHeader(m.Header)
			if err != nil || h.DeliveryCount != 0 || string(m.Body) != string(amqp.AppendData(nil, fmt.Append(nil, i+2))) {
				t.Errorf("delivery %d is %q with the count %d, %v; want %d and 0", i, m.Body, h.DeliveryCount, err, i+2)
			}
		}
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("they came after %v, want at once", waited)
		}
	})
}
