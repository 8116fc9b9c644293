// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
)

// frames reads what comes until it ends, since nobody writes while nobody reads.
func (s *saslSpeaker) frames() <-chan amqp.Performative {
	all := make(chan amqp.Performative, 100)
	go func() {
		defer close(all)
		for {
			f, err := s.in.Next()
			if err != nil {
				return
			}
			p, _, err := amqp.DecodePerformative(f.Body)
			if err != nil {
				s.Error(err)
				return
			}
			all <- p
		}
	}()
	return all
}

// next is the next performative of a type.
func next[T amqp.Performative](s *saslSpeaker, frames <-chan amqp.Performative) (found T) {
	s.Helper()
	for p := range frames {
		if p, ok := p.(T); ok {
			return p
		}
	}
	s.Fatalf("the connection ended without a %T", found)
	return found
}

// A receiver may say how far a delivery has come before it says what became of it. That is no
// outcome: no watcher sees one, and the one that follows counts.
func TestReceivedIsNoOutcome(t *testing.T) {
	for name, outcome := range map[string]amqp.DeliveryState{
		"accepted": amqp.Accepted{},
		"rejected": &amqp.Rejected{Error: &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hold *fakeHandler
				app, broker := opened(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
					hold = newFakeHandler(d, false)
					return hold, nil
				}}))
				toApp, toBroker := app.frames(), broker.frames()
				app.write(amqp.AppendFrame(nil, 0, &amqp.Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 10}, nil))
				app.write(amqp.AppendFrame(nil, 0, &amqp.Attach{
					Name: "s", Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true},
				}, nil))
				next[*amqp.Begin](broker, toBroker)
				broker.write(amqp.AppendFrame(nil, 0, &amqp.Begin{HasRemoteChannel: true, IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 10}, nil))
				attach := next[*amqp.Attach](broker, toBroker)
				broker.write(amqp.AppendFrame(nil, 0, &amqp.Attach{
					Name: attach.Name, Role: amqp.RoleReceiver, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true},
				}, nil))
				broker.write(amqp.AppendFrame(nil, 0, &amqp.Flow{
					HasNextIncomingID: true, IncomingWindow: 100, OutgoingWindow: 100, HasHandle: true,
					HasDeliveryCount: true, HasLinkCredit: true, LinkCredit: 10,
				}, nil))
				next[*amqp.Flow](app, toApp)
				app.write(amqp.AppendFrame(nil, 0, &amqp.Transfer{HasDeliveryID: true, DeliveryTag: []byte("tag")}, amqp.AppendData(nil, []byte("x"))))
				sent := next[*amqp.Transfer](broker, toBroker)

				broker.write(amqp.AppendFrame(nil, 0, &amqp.Disposition{
					Role: amqp.RoleReceiver, First: sent.DeliveryID, Last: sent.DeliveryID, State: &amqp.Received{SectionNumber: 1},
				}, nil))
				synctest.Wait()
				select {
				case o := <-hold.outcome:
					t.Fatalf("the watcher got the outcome %v, want none yet", o)
				default:
				}
				broker.write(amqp.AppendFrame(nil, 0, &amqp.Disposition{
					Role: amqp.RoleReceiver, First: sent.DeliveryID, Last: sent.DeliveryID, Settled: true, State: outcome,
				}, nil))
				if got := <-hold.outcome; amqp.Trace(&amqp.Disposition{State: got}, 0) != amqp.Trace(&amqp.Disposition{State: outcome}, 0) {
					t.Errorf("the watcher got the outcome %v, want %v", got, outcome)
				}
				(<-hold.answer)(nil)
				for {
					d := next[*amqp.Disposition](app, toApp)
					if _, partial := d.State.(*amqp.Received); partial {
						if d.Settled {
							t.Error("a delivery that has come in part was settled")
						}
						continue
					}
					if !d.Settled || amqp.Trace(&amqp.Disposition{State: d.State}, 0) != amqp.Trace(&amqp.Disposition{State: outcome}, 0) {
						t.Errorf("the app got %s, want %v", amqp.Trace(d, 0), outcome)
					}
					break
				}
			})
		})
	}
}
