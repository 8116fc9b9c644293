// SPDX-License-Identifier: Apache-2.0

package amqpserver

import (
	"testing"

	"overdue/internal/amqp"
)

func TestFlowBehindADetachIsNoError(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.write(frame(0, &amqp.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10}, ""))
		p.write(frame(0, rawAttach(0, amqp.RoleReceiver, "q"), ""))
		p.write(frame(0, &amqp.Detach{Handle: 0, Closed: true}, ""))
		p.write(frame(0, linkFlow(0, 0, 1), "")) // as go-amqp does when it tops up credit while it closes
		p.write(frame(0, rawAttach(1, amqp.RoleReceiver, "q"), ""))
		for attached := false; !attached; {
			switch f := p.next().(type) {
			case *amqp.Attach:
				attached = f.Source != nil && f.Handle == 0 && p.err == nil && f.Name == rawAttach(1, amqp.RoleReceiver, "q").Name
			case *amqp.Begin, *amqp.Detach, *amqp.Flow:
			default:
				t.Fatalf("got %T (%v), want the session to go on", f, p.err)
			}
		}
		p.write(frame(0, linkFlow(0, 0, 1), "")) // still behind the detach of handle 0
		p.write(frame(0, &amqp.Detach{Handle: 1, Closed: true}, ""))
		for {
			switch f := p.next().(type) {
			case *amqp.Detach:
				if f.Error == nil {
					return
				}
				t.Fatalf("detach with %v, want none", f.Error)
			case *amqp.Begin, *amqp.Attach, *amqp.Flow:
			default:
				t.Fatalf("got %T (%v), want the session to go on", f, p.err)
			}
		}
	})
}
