// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
)

// linkFlow grants credit on a link from which deliveryCount deliveries have been seen.
func linkFlow(handle, deliveryCount, credit uint32) *amqp.Flow {
	return &amqp.Flow{
		HasNextIncomingID: true, NextIncomingID: firstOutgoingID + deliveryCount, IncomingWindow: 1000, OutgoingWindow: 1000,
		HasHandle: true, Handle: handle, HasDeliveryCount: true, DeliveryCount: deliveryCount, HasLinkCredit: true, LinkCredit: credit,
	}
}

// message is a transfer of a whole delivery.
func message(handle, id uint32) *amqp.Transfer {
	return &amqp.Transfer{Handle: handle, HasDeliveryID: true, DeliveryID: id, DeliveryTag: fmt.Append(nil, id), HasMessageFormat: true}
}

// Older SDKs for Java tag deliveries with a UUID as text, and repeat the tag in each transfer.
func TestATagMayBeLongerThanTheSpecificationHasIt(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "q")
		for id, size := range []int{32, 36, amqp.MaxDeliveryTag} {
			tr := message(0, uint32(id))
			tr.DeliveryTag = bytes.Repeat([]byte{'a'}, size)
			tr.More = true
			half := encode("x")
			p.send(0, tr, half[:1])
			tr.More = false
			p.send(0, tr, half[1:])
			if d := expect[*amqp.Disposition](p); d.First != uint32(id) || d.State != (amqp.Accepted{}) {
				t.Errorf("a delivery with a tag of %d bytes ends with %+v, want it accepted", size, d)
			}
		}
	})
}

func TestDrainComesAfterTheDeliveriesBeforeIt(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		q := sc.echo.queue("q")
		for i := range 3 {
			q.put(encode(fmt.Sprint(i)))
		}
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		f := linkFlow(0, 0, 10)
		f.Drain = true
		p.send(0, f, nil)
		for i := range uint32(3) {
			if tr := expect[*amqp.Transfer](p); tr.DeliveryID != i {
				t.Errorf("delivery-id = %d, want %d", tr.DeliveryID, i)
			}
		}
		check := func(got *amqp.Flow, count uint32) {
			t.Helper()
			if !got.Drain || got.LinkCredit != 0 || got.DeliveryCount != count || !got.HasHandle {
				t.Errorf("answer = %s, want drain, no credit, delivery-count %d", amqp.Trace(got, 0), count)
			}
		}
		check(expect[*amqp.Flow](p), 10)
		f = linkFlow(0, 10, 0) // again, without credit
		f.NextIncomingID, f.Drain = firstOutgoingID+3, true
		p.send(0, f, nil)
		check(expect[*amqp.Flow](p), 10)
		f = linkFlow(0, 10, 1) // the link goes on
		f.NextIncomingID = firstOutgoingID + 3
		p.send(0, f, nil)
		q.put(encode("later"))
		expect[*amqp.Transfer](p)
	})
}

func TestTransfersStopAtTheRemoteIncomingWindow(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		q := sc.echo.queue("q")
		q.put(make([]byte, 3000)) // seven frames or so
		q.put(make([]byte, 10))
		p := sc.raw()
		p.open(func(o *amqp.Open) { o.MaxFrameSize = 512 })
		p.send(0, &amqp.Begin{IncomingWindow: 2, OutgoingWindow: 10, HandleMax: 10}, nil)
		expect[*amqp.Begin](p)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		f := linkFlow(0, 0, 10)
		f.IncomingWindow = 2
		p.send(0, f, nil)
		seen, deliveries := uint32(0), 0
		for deliveries < 2 {
			for range 2 {
				if tr := expect[*amqp.Transfer](p); !tr.More {
					deliveries++
				}
				seen++
			}
			synctest.Wait()
			if n := len(p.frames); n != 0 {
				t.Fatalf("%d frames came beyond the window", n)
			}
			p.send(0, &amqp.Flow{HasNextIncomingID: true, NextIncomingID: firstOutgoingID + seen, IncomingWindow: 2, OutgoingWindow: 10}, nil)
		}
	})
}

func TestEchoIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.send(0, &amqp.Flow{HasNextIncomingID: true, IncomingWindow: 5, OutgoingWindow: 5, Echo: true}, nil)
		if f := expect[*amqp.Flow](p); f.HasHandle || f.IncomingWindow != 5000 || f.NextIncomingID != 0 || !f.HasNextIncomingID {
			t.Errorf("session echo = %s", amqp.Trace(f, 0))
		}
		p.attach(0, 0, amqp.RoleReceiver, "q")
		f := linkFlow(0, 0, 7)
		f.Echo = true
		p.send(0, f, nil)
		if f := expect[*amqp.Flow](p); !f.HasHandle || f.LinkCredit != 7 || f.Drain || f.Echo {
			t.Errorf("link echo = %s, want credit 7", amqp.Trace(f, 0))
		}
	})
}

func TestIncomingWindowIsReplenishedAndEnforced(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "sink")
		var batch []byte
		for i := range uint32(6) { // in one write, so that no flow can come between
			m := message(0, i)
			m.Settled, m.HasSettled = true, true
			batch = amqp.AppendFrame(batch, 0, m, []byte("x"))
		}
		p.write(batch)
		if f := expect[*amqp.Flow](p); f.NextIncomingID != 6 || f.IncomingWindow != 10 {
			t.Errorf("flow = %s, want next-incoming-id 6 and the full window", amqp.Trace(f, 0))
		}
		batch = batch[:0]
		for i := uint32(6); i < 17; i++ {
			m := message(0, i)
			m.Settled, m.HasSettled = true, true
			batch = amqp.AppendFrame(batch, 0, m, []byte("x"))
		}
		p.write(batch)
		if e := p.awaitEnd(); cond(e.Error) != string(amqp.ErrCondSessionWindowViolation) {
			t.Errorf("end = %v, want window-violation", e.Error)
		}
	}, func(c *Config) { c.IncomingWindow = 10 })
}

// awaitEnd passes over flows and dispositions.
func (p *rawPeer) awaitEnd() *amqp.End {
	p.t.Helper()
	for {
		switch f := p.next().(type) {
		case *amqp.Flow, *amqp.Disposition, *amqp.Detach:
		case *amqp.End:
			return f
		default:
			p.t.Fatalf("got %T (%v), want end", f, p.err)
		}
	}
}

func TestInterleavedAndAbortedDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "hold")
		p.attach(0, 1, amqp.RoleSender, "hold2")
		more := func(handle, id uint32) *amqp.Transfer { m := message(handle, id); m.More = true; return m }
		p.send(0, more(0, 0), []byte("a1"))
		p.send(0, more(1, 1), []byte("b1"))
		p.send(0, &amqp.Transfer{Handle: 0, More: true}, []byte("a2"))
		p.send(0, &amqp.Transfer{Handle: 1, Aborted: true, More: true}, []byte("never"))
		p.send(0, message(1, 2), []byte("c"))
		p.send(0, &amqp.Transfer{Handle: 0}, []byte("a3"))
		held := sc.awaitDeliveries(2)
		if got := fmt.Sprintf("%s %s", held[0].Payload, held[1].Payload); got != "c a1a2a3" {
			t.Errorf("delivered %q, want %q", got, "c a1a2a3")
		}
		if got := string(held[1].Tag); got != "0" {
			t.Errorf("tag = %q, want 0", got)
		}
	})
}

func TestLinkOfTheSameNameIsStolen(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.begin(1)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		p.send(1, rawAttach(0, amqp.RoleReceiver, "q"), nil)
		if d := expect[*amqp.Detach](p); cond(d.Error) != string(amqp.ErrCondLinkStolen) || !d.Closed {
			t.Errorf("detach = %v, want link:stolen", d.Error)
		}
		if a := expect[*amqp.Attach](p); a.Source == nil {
			t.Errorf("the new link was refused")
		}
		// A sender of that name is another link.
		a := rawAttach(1, amqp.RoleSender, "q")
		a.Name = "q-0-receiver"
		p.send(1, a, nil)
		if a := expect[*amqp.Attach](p); a.Target == nil {
			t.Errorf("the sender was refused")
		}
	})
}

func TestLimitsOfLinks(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.begin(1)
		for h := range uint32(3) {
			p.attach(0, h, amqp.RoleReceiver, "q")
		}
		if a := p.attach(1, 0, amqp.RoleReceiver, "p"); a.Source != nil {
			t.Errorf("the fourth link has a source, want a refusal")
		}
		if d := expect[*amqp.Detach](p); cond(d.Error) != string(amqp.ErrCondResourceLimitExceeded) {
			t.Errorf("detach = %v, want resource-limit-exceeded", d.Error)
		}
		p.send(1, &amqp.Detach{Handle: 0, Closed: true}, nil)
		p.send(0, &amqp.Detach{Handle: 1, Closed: true}, nil)
		expect[*amqp.Detach](p)
		if a := p.attach(1, 0, amqp.RoleReceiver, "p"); a.Source == nil {
			t.Errorf("a link was refused though one had gone")
		}
	}, func(c *Config) { c.MaxLinks = 3 })
}

// A client may send on many links at once, each message up to the size that its link states.
func TestUnfinishedDeliveriesOfOtherLinksRefuseNone(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		const links, frames, frame = 90, 16, 65000
		p := sc.raw()
		p.open()
		p.begin(0)
		for h := range uint32(links) {
			p.attach(0, h, amqp.RoleSender, fmt.Sprint("hold", h))
		}
		for i := range frames {
			for h := range uint32(links) {
				m := &amqp.Transfer{Handle: h}
				if i == 0 {
					m = message(h, h)
				}
				m.More = i < frames-1
				p.send(0, m, make([]byte, frame))
			}
		}
		for _, d := range sc.awaitDeliveries(links) {
			if got := len(d.Payload); got != frames*frame {
				t.Errorf("delivery has %d bytes, want %d", got, frames*frame)
			}
		}
	})
}

func TestDetachedIsCalledThoughThePeerIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "hold")
		p.attach(0, 1, amqp.RoleReceiver, "q")
		p.send(0, message(0, 0), []byte("x"))
		d := sc.awaitDeliveries(1)[0]
		d.Link().Detach(nil)
		synctest.Wait()
		if got := fmt.Sprint(sc.echo.notes()); got != "[sink hold: -]" {
			t.Errorf("handler noted %s, want [sink hold: -]", got)
		}
		d.Link().Session().End(nil)
		synctest.Wait()
		if got := fmt.Sprint(sc.echo.notes()); got != "[sink hold: - source q: -]" {
			t.Errorf("handler noted %s, want the source's end too", got)
		}
	})
}

// The Python SDK ends its session first, and then detaches what it had in it.
func TestADetachBehindTheEndIsOfNoInterest(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "sink")
		p.send(0, &amqp.End{}, nil)
		p.send(0, &amqp.Detach{Handle: 0}, nil)
		expect[*amqp.End](p)
		p.send(0, &amqp.Begin{IncomingWindow: 5, OutgoingWindow: 5}, nil)
		expect[*amqp.Begin](p)
		p.send(0, &amqp.Close{}, nil)
		if e := expect[*amqp.Close](p).Error; e != nil {
			t.Errorf("the connection ended with %v, want no error", e)
		}
	})
}
