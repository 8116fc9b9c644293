// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/pipenet"
)

// A delivery that waits in the relay when its receiver goes has never reached the client. It is
// free at once, and not kept for the length of a lock that nobody knows of.
func TestWhatAReceiverWasNotSentIsFreeWhenItGoes(t *testing.T) {
	for name, leave := range map[string]func(p *peer){
		"by a detach": func(p *peer) { p.write(0, &amqp.Detach{Handle: 1, Closed: true}, nil) },
		"by an end":   func(p *peer) { p.write(0, &amqp.End{}, nil) },
		"by a close":  func(p *peer) { p.write(0, &amqp.Close{}, nil) },
		"hanging up":  func(p *peer) { p.s.must(p.nc.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, nil)
				p := s.peer()
				p.attachSender("s", 0, "orders")
				p.expect("flow")
				for id := range uint32(5) {
					p.tryTransfer(0, id)
				}
				p.came("disposition")
				p.write(0, &amqp.Attach{
					Name: "r", Handle: 1, Role: amqp.RoleReceiver, Source: &amqp.Source{Address: "orders", HasAddress: true}, Target: &amqp.Target{},
				}, nil)
				p.expect("attach")
				// Credit for all of them, and a window for two.
				p.write(0, &amqp.Flow{
					HasNextIncomingID: true, IncomingWindow: 2, OutgoingWindow: 1000, HasHandle: true, Handle: 1,
					HasDeliveryCount: true, LinkCredit: 5, HasLinkCredit: true,
				}, nil)
				if got := p.came("transfer"); len(got) != 2 {
					t.Fatalf("got %q, want the two that the window takes", got)
				}
				leave(p)
				if got := p.came("transfer"); len(got) != 0 && got[0] != "the end of the connection" {
					t.Errorf("got %q after leaving, want no transfer", got)
				}
				q, _ := s.ns.Broker.Queue("orders")
				c := q.NewConsumer(queue.PeekLock)
				defer c.Close()
				c.AddCredit(9)
				ds, _, _ := c.Take(nil)
				if len(ds) != 3 {
					t.Errorf("%d messages are free %v after the receiver has gone, want 3", len(ds), time.Second)
				}
				for _, d := range ds {
					if d.DeliveryCount != 0 {
						t.Errorf("message %d counts %d deliveries, want none", d.SequenceNumber, d.DeliveryCount)
					}
				}
			})
		})
	}
}

// A delivery that upstream has settled is consumed. The client that has just detached gets it, as
// it would get a delivery on the wire between it and a broker, and then the answer to its detach.
func TestSettledDeliveriesReachAReceiverThatHasDetached(t *testing.T) {
	for name, c := range map[string]struct {
		window uint32
		want   int
	}{
		"room for all":    {1000, 5},
		"a closed window": {2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, nil)
				p := s.peer()
				p.attachSender("s", 0, "orders")
				p.expect("flow")
				for id := range uint32(5) {
					p.tryTransfer(0, id)
				}
				p.came("disposition")
				p.write(0, &amqp.Attach{
					Name: "r", Handle: 1, Role: amqp.RoleReceiver, SndSettleMode: amqp.SndSettled,
					Source: &amqp.Source{Address: "orders", HasAddress: true}, Target: &amqp.Target{},
				}, nil)
				p.expect("attach")
				s.ns.Net.Delay(pipenet.ToDialer, 100*time.Millisecond)
				p.write(0, &amqp.Flow{
					HasNextIncomingID: true, IncomingWindow: c.window, OutgoingWindow: 1000, HasHandle: true, Handle: 1,
					HasDeliveryCount: true, LinkCredit: 5, HasLinkCredit: true,
				}, nil)
				time.Sleep(50 * time.Millisecond) // the broker has sent, and the relay has not got it
				p.write(0, &amqp.Detach{Handle: 1, Closed: true}, nil)
				got := p.came("transfer", "detach")
				transfers := len(got) - 1
				if transfers != c.want || !strings.HasPrefix(got[transfers], "detach") {
					t.Errorf("got %q, want %d transfers and then a detach", got, c.want)
				}
			})
		})
	}
}
