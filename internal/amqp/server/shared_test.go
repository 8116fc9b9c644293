// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
)

// holds attaches a raw client to two links whose messages the test settles.
func (sc *scene) holds() *rawPeer {
	p := sc.raw()
	p.open()
	p.begin(0)
	p.attach(0, 0, amqp.RoleSender, "hold")
	p.attach(0, 1, amqp.RoleSender, "hold")
	return p
}

// delivered sends messages of those ids, on one link after the other, and returns what the handler
// got.
func (sc *scene) delivered(p *rawPeer, ids ...uint32) []*Delivery {
	for i, id := range ids {
		p.send(0, message(uint32(i)%2, id), []byte("x"))
	}
	synctest.Wait()
	return sc.echo.takeDeliveries()
}

func outcome(p *rawPeer) string {
	p.t.Helper()
	d := expect[*amqp.Disposition](p)
	return fmt.Sprintf("%d-%d %T settled=%v", d.First, d.Last, d.State, d.Settled)
}

func TestDeliveriesMayShareAnIDOrComeLate(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.holds()
		held := sc.delivered(p, 7, 7, 9, 8)
		if len(held) != 4 {
			t.Fatalf("%d deliveries came through, want 4", len(held))
		}
		for _, d := range held {
			d.Link().Settle(d, amqp.Accepted{})
		}
		synctest.Wait()
		// The writer may have begun before the last outcome, so there may be several dispositions.
		var got []uint32
		for range len(p.frames) {
			d := expect[*amqp.Disposition](p)
			if d.State != (amqp.Accepted{}) || !d.Settled {
				t.Errorf("outcome %T, settled %v, want accepted and settled", d.State, d.Settled)
			}
			for id := d.First; id <= d.Last; id++ {
				got = append(got, id)
			}
		}
		slices.Sort(got)
		if want := []uint32{7, 8, 9}; !slices.Equal(got, want) {
			t.Errorf("outcomes of deliveries %v, want of %v, each once", got, want)
		}
		p.attach(0, 2, amqp.RoleSender, "sink") // the session lives
	})
}

// An accepted delivery and a refused one with the same id are one to the client.
func TestDeliveriesThatShareAnIDHaveOneOutcome(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		bubble(t, func(t *testing.T, sc *scene) {
			p := sc.holds()
			held := sc.delivered(p, 0, 0)
			states := []amqp.DeliveryState{amqp.Accepted{}, &amqp.Rejected{}}
			held[order[0]].Link().Settle(held[order[0]], states[order[0]])
			synctest.Wait()
			if n := len(p.frames); n != 0 {
				t.Errorf("an outcome was sent while the other delivery of that id had none")
			}
			held[order[1]].Link().Settle(held[order[1]], states[order[1]])
			if got, want := outcome(p), "0-0 *amqp.Rejected settled=true"; got != want {
				t.Errorf("outcomes %s, want %s", got, want)
			}
			again := sc.delivered(p, 0) // that of one that is settled is free
			again[0].Link().Settle(again[0], amqp.Accepted{})
			if got, want := outcome(p), "0-0 amqp.Accepted settled=true"; got != want {
				t.Errorf("outcomes %s, want %s", got, want)
			}
		})
	}
}

func TestAnOutcomeDoesNotWaitForALinkThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.holds()
		held := sc.delivered(p, 3, 3)
		held[0].Link().Settle(held[0], amqp.Accepted{})
		p.send(0, &amqp.Detach{Handle: 1, Closed: true}, nil)
		expect[*amqp.Detach](p)
		if got, want := outcome(p), "3-3 amqp.Accepted settled=true"; got != want {
			t.Errorf("outcomes %s, want %s", got, want)
		}
	})
}

func TestAnIDFarBehindEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "sink")
		for _, id := range []uint32{10_000, 5_001} { // the incoming window has 5000
			p.send(0, message(0, id), []byte("x"))
			expect[*amqp.Disposition](p)
		}
		p.send(0, message(0, 5_000), []byte("x"))
		if e := expect[*amqp.End](p).Error; e == nil || e.Condition != amqp.ErrCondInvalidField {
			t.Errorf("the session ended with %v, want invalid-field", e)
		}
	})
}
