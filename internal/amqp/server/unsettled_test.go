// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
)

func TestManyDispositionsMergeAndAFewDoNot(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "sink")
		p.attach(0, 1, amqp.RoleSender, "sink2")
		var batch []byte
		for i := range uint32(100) {
			batch = amqp.AppendFrame(batch, 0, message(i%2, i), []byte("x"))
		}
		p.write(batch)
		if d := expect[*amqp.Disposition](p); d.First != 0 || d.Last != 99 || !d.Settled || d.Role != amqp.RoleReceiver {
			t.Errorf("disposition = %s, want 0 to 99 settled", amqp.Trace(d, 0))
		}
		// Settled out of order by the handler, in two states.
		p.attach(0, 2, amqp.RoleSender, "hold")
		batch = batch[:0]
		for i := uint32(100); i < 110; i++ {
			batch = amqp.AppendFrame(batch, 0, message(2, i), []byte("x"))
		}
		p.write(batch)
		synctest.Wait()
		held := sc.echo.takeDeliveries()
		sc.srvLocked(func() {
			for _, i := range []int{9, 1, 0, 2, 4, 3} {
				settleLocked(held[i], amqp.Accepted{})
			}
			for _, i := range []int{5, 7, 6} {
				settleLocked(held[i], amqp.Released{})
			}
		}, held[0].Link().Conn())
		var got []string
		for range 9 {
			d := expect[*amqp.Disposition](p)
			got = append(got, fmt.Sprintf("%d-%d %T", d.First, d.Last, d.State))
		}
		if want := "[100-100 amqp.Accepted 101-101 amqp.Accepted 102-102 amqp.Accepted 103-103 amqp.Accepted 104-104 amqp.Accepted " +
			"105-105 amqp.Released 106-106 amqp.Released 107-107 amqp.Released 109-109 amqp.Accepted]"; fmt.Sprint(got) != want {
			t.Errorf("dispositions = %v, want %s", got, want)
		}
	})
}

// srvLocked keeps the writer away while f runs, so that a test can tell what is merged.
func (sc *scene) srvLocked(f func(), c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func settleLocked(d *Delivery, st amqp.DeliveryState) {
	d.done = true
	d.link.forgetLocked(d)
	d.link.s.ackLocked(amqp.RoleReceiver, d.id, true, st)
}

func TestHostileRangesCostNoMoreThanTheUnsettledDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		q := sc.echo.queue("q")
		for i := range 5 {
			q.put(encode(fmt.Sprint(i)))
		}
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		p.attach(0, 1, amqp.RoleSender, "hold")
		p.send(0, linkFlow(0, 0, 3), nil)
		for range 3 {
			expect[*amqp.Transfer](p)
		}
		p.send(0, message(1, 0), []byte("x"))
		for _, r := range [][2]uint32{{1 << 31, 1<<32 - 1}, {3, 1 << 31}, {1<<32 - 1, 1<<32 - 1}, {0, 1<<32 - 1}} {
			for _, role := range []amqp.Role{amqp.RoleReceiver, amqp.RoleSender} {
				for range 1000 {
					p.send(0, &amqp.Disposition{Role: role, First: r[0], Last: r[1], Settled: true, State: amqp.Accepted{}}, nil)
				}
			}
		}
		p.send(0, &amqp.Flow{HasNextIncomingID: true, IncomingWindow: 5, OutgoingWindow: 5, Echo: true}, nil)
		expect[*amqp.Flow](p)
		if got := len(q.states()); got != 3 {
			t.Errorf("%d outcomes were sent, want 3", got)
		}
		d := sc.echo.takeDeliveries()[0]
		d.Link().Settle(d, amqp.Accepted{}) // its sender has settled it: nothing to say
		p.send(0, &amqp.Detach{Handle: 1, Closed: true}, nil)
		expect[*amqp.Detach](p)
	})
}
