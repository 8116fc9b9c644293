// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
)

// attachReceiver attaches a receiver.
func attachReceiver(p *peer, c *Conn, cfg ReceiverConfig) *Receiver {
	p.Helper()
	go func() {
		p.begin(1000)
		if a := p.attach(0); a.RcvSettleMode != amqp.RcvSecond || a.Source.Address != "orders" {
			p.Errorf("attach = %+v, want a receiver from orders that settles second", a)
		}
	}()
	r, err := c.Receiver(p.Context(), "orders", cfg)
	if err != nil {
		p.Fatal(err)
	}
	synctest.Wait()
	return r
}

// deliver sends a message in parts.
func (p *peer) deliver(id uint32, parts ...string) {
	for i, part := range parts {
		p.send(peerChannel, &amqp.Transfer{Handle: peerHandle, HasDeliveryID: i == 0, DeliveryID: id, DeliveryTag: []byte{byte(id)}, More: i < len(parts)-1}, []byte(part))
	}
	synctest.Wait()
}

// flow sends the state of the link: the peer has sent, or given up, that many.
func (p *peer) flow(sent, credit uint32, drain bool) {
	p.send(peerChannel, &amqp.Flow{
		IncomingWindow: 1000, Handle: peerHandle, HasHandle: true,
		DeliveryCount: peerDeliveryCount + sent, HasDeliveryCount: true, LinkCredit: credit, HasLinkCredit: true, Drain: drain,
	}, nil)
	synctest.Wait()
}

func TestMessagesComeForCredit(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		r := attachReceiver(p, c, ReceiverConfig{})
		if err := r.Grant(p.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if f, _ := next[*amqp.Flow](p); f.LinkCredit != 2 || f.DeliveryCount != peerDeliveryCount || f.Drain {
			t.Errorf("flow = %+v, want credit of 2", f)
		}
		p.deliver(0, "one")
		p.deliver(1, "t", "w", "o")
		for _, want := range []string{"one", "two"} {
			if d, err := r.Receive(p.Context()); err != nil || string(d.Payload) != want {
				t.Errorf("Receive = %+v, %v, want %s", d, err, want)
			}
		}
		if d := r.Arrived(); d != nil || r.Credit() != 0 {
			t.Errorf("Arrived = %+v with credit %d, want nothing", d, r.Credit())
		}
		began := time.Now()
		if d, err := r.Receive(within(p.T, time.Second)); d != nil || err == nil || time.Since(began) != time.Second {
			t.Errorf("Receive = %+v, %v after %v, want that time is up", d, err, time.Since(began))
		}
	})
}

func TestAReceiverMayKeepTheFirstBytesOnly(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		r := attachReceiver(p, c, ReceiverConfig{Head: 5})
		if err := r.Grant(p.Context(), 1); err != nil {
			t.Fatal(err)
		}
		p.deliver(0, "abc", "def", strings.Repeat("x", 10_000))
		if d := r.Arrived(); d == nil || string(d.Payload) != "abcde" {
			t.Errorf("Arrived = %+v, want abcde", d)
		}
	})
}

// Credit that messages have used, credit that was given up, and a late answer to a drain: none of
// them is taken for another.
func TestDrainLeavesNoCredit(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		r := attachReceiver(p, c, ReceiverConfig{})
		grant := func(n uint32) {
			t.Helper()
			if err := r.Grant(p.Context(), n); err != nil {
				t.Fatal(err)
			}
			next[*amqp.Flow](p)
		}
		drain := func() chan error {
			done := make(chan error, 1)
			go func() { done <- r.Drain(p.Context()) }()
			if f, _ := next[*amqp.Flow](p); !f.Drain {
				t.Errorf("flow = %+v, want a drain", f)
			}
			synctest.Wait()
			return done
		}
		grant(3)
		done := drain()
		p.deliver(0, "crossed it")
		select {
		case err := <-done:
			t.Fatalf("Drain = %v before it is answered", err)
		default:
		}
		p.flow(3, 0, true)
		if err := <-done; err != nil || r.Credit() != 0 || string(r.Arrived().Payload) != "crossed it" {
			t.Errorf("Drain = %v, credit %d", err, r.Credit())
		}
		grant(1)
		done = drain()
		p.deliver(1, "used all")
		if err := <-done; err != nil {
			t.Errorf("Drain = %v", err)
		}
		grant(2)
		p.flow(4, 0, true) // the late answer
		if r.Credit() != 2 {
			t.Errorf("credit %d after a late answer, want 2", r.Credit())
		}
		done = drain()
		p.send(peerChannel, &amqp.Transfer{Handle: peerHandle, HasDeliveryID: true, DeliveryID: 2, DeliveryTag: []byte{2}, More: true}, []byte("in "))
		p.flow(6, 0, true) // counts the message that has come in part
		if r.Credit() != 1 {
			t.Errorf("credit %d while a message is coming, want 1 for it", r.Credit())
		}
		p.send(peerChannel, &amqp.Transfer{Handle: peerHandle}, []byte("parts"))
		if err := <-done; err != nil || r.Credit() != 0 {
			t.Errorf("Drain = %v, credit %d", err, r.Credit())
		}
		if err := r.Drain(p.Context()); err != nil { // nothing to take back
			t.Error(err)
		}
	})
}

func TestSettlementsWaitForThePeer(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		r := attachReceiver(p, c, ReceiverConfig{})
		if err := r.Grant(p.Context(), 10); err != nil {
			t.Fatal(err)
		}
		next[*amqp.Flow](p)
		for id := range uint32(5) {
			p.deliver(id, "x")
		}
		var ds []*Delivery
		results := make([]chan error, 5)
		outcomes := []amqp.DeliveryState{amqp.Accepted{}, amqp.Released{}, &amqp.Rejected{Error: &amqp.Error{Condition: "com.microsoft:dead-letter"}}, amqp.Accepted{}, amqp.Accepted{}}
		for i, outcome := range outcomes {
			d := r.Arrived()
			ds = append(ds, d)
			results[i] = make(chan error, 1)
			go func() { results[i] <- r.Settle(p.Context(), outcome, d) }()
			if said, _ := next[*amqp.Disposition](p); said.Role != amqp.RoleReceiver || said.Settled || said.First != uint32(i) || amqp.Trace(said.State, 0) != amqp.Trace(outcome, 0) {
				t.Errorf("disposition = %+v, want %T for %d, unsettled", said, outcome, i)
			}
		}
		if err := r.Settle(p.Context(), amqp.Accepted{}, ds[0]); !errors.Is(err, errSettling) {
			t.Errorf("a second Settle = %v", err)
		}
		answer := func(first, last uint32, settled bool, state amqp.DeliveryState) {
			p.send(peerChannel, &amqp.Disposition{Role: amqp.RoleSender, First: first, Last: last, Settled: settled, State: state}, nil)
			synctest.Wait()
		}
		answer(0, 0, false, amqp.Accepted{}) // not settled yet
		if len(results[0]) > 0 {
			t.Errorf("Settle = %v before the peer has settled", <-results[0])
		}
		answer(2, 2, true, &amqp.Rejected{}) // repeats the outcome
		answer(0, 1, true, amqp.Accepted{})
		answer(3, 3, true, &amqp.Rejected{Error: amqp.Errorf("com.microsoft:message-lock-lost", "lapsed")})
		for i := range 3 {
			if err := <-results[i]; err != nil {
				t.Errorf("Settle %d = %v", i, err)
			}
		}
		var refused *amqp.Error
		if err := <-results[3]; !errors.As(err, &refused) || refused.Condition != "com.microsoft:message-lock-lost" {
			t.Errorf("Settle = %v, want that the lock is lost", err)
		}
		p.send(peerChannel, &amqp.Detach{Handle: peerHandle, Closed: true}, nil)
		var ended *EndedError
		if err := <-results[4]; !errors.As(err, &ended) || ended.Scope != Link {
			t.Errorf("Settle = %v, want that the link has ended", err)
		}
		if _, err := r.Receive(p.Context()); !errors.As(err, &ended) {
			t.Errorf("Receive = %v, want that the link has ended", err)
		}
		if err := r.Grant(p.Context(), 1); !errors.As(err, &ended) {
			t.Errorf("Grant = %v, want that the link has ended", err)
		}
	})
}

// The window of a session is opened again, or the messages would stop.
func TestASessionTakesAnyNumberOfFrames(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		r := attachReceiver(p, c, ReceiverConfig{})
		if err := r.Grant(p.Context(), 2*incomingWindow); err != nil {
			t.Fatal(err)
		}
		next[*amqp.Flow](p)
		left := uint32(incomingWindow)
		for id := range uint32(2 * incomingWindow) {
			p.send(peerChannel, &amqp.Transfer{Handle: peerHandle, HasDeliveryID: true, DeliveryID: id, DeliveryTag: []byte{1}}, nil)
			left--
			synctest.Wait()
			for len(p.frames) > 0 {
				f, _ := next[*amqp.Flow](p)
				left = f.IncomingWindow - (id + 1 - f.NextIncomingID)
			}
			if left == 0 {
				t.Fatalf("the window is closed after %d frames", id)
			}
		}
	})
}

func TestAMessageWithoutCreditEndsTheConnection(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		r := attachReceiver(p, c, ReceiverConfig{})
		p.deliver(0, "x")
		var ended *EndedError
		if _, err := r.Receive(p.Context()); !errors.As(err, &ended) || ended.Scope != Connection {
			t.Errorf("Receive = %v, want that the connection has ended", err)
		}
	})
}
