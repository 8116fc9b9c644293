// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
)

// A client may detach its links, end its session and wait for the answers only then, as the .NET
// SDK does. It gets each of them, in order and before the end.
func TestAClientGetsTheAnswersToWhatItSentBeforeItsEnd(t *testing.T) {
	frames := func(ch uint16, all ...amqp.Performative) (b []byte) {
		for _, p := range all {
			b = amqp.AppendFrame(b, ch, p, nil)
		}
		return b
	}
	detach, end := &amqp.Detach{Closed: true}, &amqp.End{}
	attach := func(role amqp.Role) *amqp.Attach {
		orders, own := "orders", ""
		if role == amqp.RoleReceiver {
			orders, own = own, orders
		}
		return &amqp.Attach{
			Name: "l", Role: role, Source: &amqp.Source{Address: own, HasAddress: true}, Target: &amqp.Target{Address: orders, HasAddress: true},
		}
	}
	send := func(detachFirst bool) func(p *peer) []byte {
		return func(p *peer) []byte {
			p.attachSender("s", 0, "orders")
			p.expect("flow")
			b := amqp.AppendFrame(nil, 0, &amqp.Transfer{HasDeliveryID: true, DeliveryTag: []byte("tag")}, amqp.AppendData(nil, []byte("x")))
			if detachFirst {
				return append(b, frames(0, detach)...)
			}
			return append(b, frames(0, detach, end)...)
		}
	}
	for _, tc := range []struct {
		name string
		last func(p *peer) []byte // prepares the scene, and returns what the client says at once
		want []string
	}{
		{"a sender", func(p *peer) []byte {
			p.attachSender("s", 0, "orders")
			p.expect("flow")
			return frames(0, detach, end)
		}, []string{"detach", "end"}},
		{"a receiver", func(p *peer) []byte {
			p.write(0, attach(amqp.RoleReceiver), nil)
			p.expect("attach")
			return frames(0, detach, end)
		}, []string{"detach", "end"}},
		{"a whole session of a sender", func(*peer) []byte {
			return frames(1, &amqp.Begin{IncomingWindow: 100, HandleMax: 10}, attach(amqp.RoleSender), detach, end)
		}, []string{"begin", "attach", "flow", "detach", "end"}},
		{"a whole session of a receiver", func(*peer) []byte {
			return frames(1, &amqp.Begin{IncomingWindow: 100, HandleMax: 10}, attach(amqp.RoleReceiver), detach, end)
		}, []string{"begin", "attach", "detach", "end"}},
		{"a link that is not detached", func(*peer) []byte {
			return frames(1, &amqp.Begin{IncomingWindow: 100, HandleMax: 10}, attach(amqp.RoleReceiver), end)
		}, []string{"begin", "attach", "end"}},
		{"a question for the state of a link", func(p *peer) []byte {
			p.attachSender("s", 0, "orders")
			p.expect("flow")
			return frames(0, &amqp.Flow{IncomingWindow: 100, HasHandle: true, HasDeliveryCount: true, Echo: true}, end)
		}, []string{"flow", "end"}},
		{"an outcome that a handler decides, and a detach", send(true), []string{"disposition", "detach"}},
		{"an outcome that a handler decides, a detach and an end", send(false), []string{"disposition", "detach", "end"}},
		{"behind deliveries that have no room", func(p *peer) []byte {
			p.attachSender("s", 0, "orders")
			p.expect("flow")
			p.tryTransfer(0, 0)
			p.expect("disposition")
			r := attach(amqp.RoleReceiver)
			r.Handle = 1
			p.write(0, r, nil)
			p.expect("attach")
			p.write(0, &amqp.Flow{HasHandle: true, Handle: 1, HasDeliveryCount: true, LinkCredit: 1, HasLinkCredit: true}, nil)
			return frames(0, detach, end)
		}, []string{"detach", "end"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, watching(&fakeWatcher{deliver: func(*Delivery) (DeliveryHandler, *amqp.Error) { return slowly{}, nil }}))
				p := s.peer()
				_, err := p.nc.Write(tc.last(p))
				s.must(err)
				var got []string
				for range 3 { // a second each, which the handler takes twice
					for _, frame := range p.came("begin", "attach", "flow", "transfer", "disposition", "detach", "end") {
						name, _, _ := strings.Cut(frame, " ")
						got = append(got, name)
					}
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			})
		})
	}
}
