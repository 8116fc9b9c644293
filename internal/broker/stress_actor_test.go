// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/pipenet"
)

// A world is the scene of the stress test.
type world struct {
	t    *testing.T
	b    *Broker
	n    *Namespace
	net  *pipenet.Network
	seed uint64
	over atomic.Bool // the clients are done

	mu         sync.Mutex
	actors     uint64
	messages   map[string]*sentMessage // by message-id
	completed  map[string]int          // by place and message-id
	maybe      map[string]bool         // completions of which nothing was heard
	trouble    int
	disturbed  int
	discharged int

	resets struct {
		sync.Mutex
		n atomic.Int64
	}
}

// An actor does one thing at a time.
type actor struct {
	*world
	r    *rand.Rand
	conn *sdk.Conn
}

func (w *world) actor() *actor {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actors++
	return &actor{world: w, r: rand.New(rand.NewPCG(w.seed, w.actors))}
}

// pause lets others, and locks, go on.
func (a *actor) pause(most time.Duration) { time.Sleep(time.Duration(a.r.Int64N(int64(most)))) }

func (a *actor) one(of ...string) string { return of[a.r.IntN(len(of))] }

// status is mostly Active, or else nothing would get anywhere.
func (a *actor) status() Status { return Status(max(a.r.IntN(12)-8, 0)) }

func (a *actor) hangUp() {
	if a.conn != nil {
		_ = a.conn.Close() // it may have been cut
		a.conn = nil
	}
}

// session opens a session, on a new connection where the old one is of no use.
// nil: not now.
func (a *actor) session(ctx context.Context) *sdk.Session {
	if a.conn != nil {
		if s, err := a.conn.NewSession(ctx, nil); err == nil {
			return s
		}
		a.hangUp()
	}
	nc, err := a.net.Dial(ctx, "stress")
	if err != nil {
		return nil
	}
	if a.conn, err = sdk.NewConn(ctx, nc, &sdk.ConnOptions{SASLType: sdk.SASLTypeAnonymous(), HostName: "stress"}); err != nil {
		a.conn = nil
		return nil
	}
	s, err := a.conn.NewSession(ctx, nil)
	if err != nil {
		a.hangUp()
		return nil
	}
	return s
}

func textMessage(id string, n int) []byte {
	b, err := (&sdk.Message{
		Properties:            &sdk.MessageProperties{MessageID: id},
		ApplicationProperties: map[string]any{"n": int64(n)},
		Data:                  [][]byte{[]byte(id)},
	}).MarshalBinary()
	if err != nil {
		panic(err) // of a constant shape
	}
	return b
}

// isRefusal tells an outcome that says no from the end of a link, which says
// nothing of what was under way.
func isRefusal(err error) bool {
	_, ok := err.(*sdk.Error) //nolint:errorlint // the errors of links wrap one
	return ok
}

// send sends messages, one or several at a time.
func (a *actor) send(to string, n int) {
	defer a.hangUp()
	for n > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		n -= a.sendSome(ctx, to, min(n, 1+a.r.IntN(20)))
		cancel()
		a.pause(time.Second)
	}
}

func (a *actor) sendSome(ctx context.Context, to string, n int) (sent int) {
	s := a.session(ctx)
	if s == nil {
		a.add(&a.trouble)
		return 0
	}
	defer func() { _ = s.Close(ctx) }() // with its link; it may be gone
	link, err := s.NewSender(ctx, to, nil)
	if err != nil {
		a.add(&a.trouble)
		return 0
	}
	for range n {
		id, number := a.note(to)
		m := &sdk.Message{
			Properties:            &sdk.MessageProperties{MessageID: id, GroupID: new(a.one("a", "b", "c"))},
			ApplicationProperties: map[string]any{"n": int64(number)},
			Data:                  [][]byte{[]byte(id)},
		}
		err := link.Send(ctx, m, nil)
		switch {
		case err == nil:
			a.know(id, acknowledged)
		case isRefusal(err):
			a.know(id, turnedAway)
		}
		sent++
		if err != nil {
			a.add(&a.trouble)
			break
		}
		if a.r.IntN(10) == 0 {
			a.pause(100 * time.Millisecond)
		}
	}
	return sent
}

// receive receives and settles, with a new link every now and then.
func (a *actor) receive(from string, session bool, rounds int) {
	defer a.hangUp()
	for range rounds {
		// Sometimes the wait for a session ends because the client goes away.
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+a.r.IntN(10))*time.Second)
		if s := a.session(ctx); s != nil {
			if !a.receiveOver(ctx, s, from, session) {
				a.add(&a.trouble)
			}
			if a.r.IntN(4) > 0 { // or else the link stays until its connection goes
				_ = s.Close(ctx)
			} else {
				a.hangUp()
			}
		}
		cancel()
		a.pause(500 * time.Millisecond)
	}
}

func (a *actor) receiveOver(ctx context.Context, s *sdk.Session, from string, session bool) bool {
	o := &sdk.ReceiverOptions{SettlementMode: sdk.ReceiverSettleModeSecond.Ptr(), Credit: int32(1 + a.r.IntN(8))}
	if session {
		var id any
		if a.r.IntN(3) == 0 {
			id = a.one("a", "b", "c")
		}
		o.Filters = []sdk.LinkFilter{sdk.NewLinkFilter(sessionFilter, 0x137000000C, id)}
		o.Properties = map[string]any{linkTimeout: uint32(a.r.IntN(4000))}
	}
	link, err := s.NewReceiver(ctx, from, o)
	if err != nil {
		return false
	}
	for range a.r.IntN(12) {
		m, err := link.Receive(ctx, nil)
		if err != nil {
			return false
		}
		if a.r.IntN(8) == 0 {
			a.pause(7 * time.Second) // the lock may lapse meanwhile
		}
		if err := a.settle(ctx, link, from, m); err != nil {
			return false
		}
	}
	return true
}

func (a *actor) settle(ctx context.Context, link *sdk.Receiver, from string, m *sdk.Message) error {
	id, _ := m.Properties.MessageID.(string)
	switch n := a.r.IntN(20); {
	case n < 10:
		err := link.AcceptMessage(ctx, m)
		if !isRefusal(err) {
			a.complete(placeOf(from), id, err == nil)
		}
		return err
	case n < 13:
		return link.ReleaseMessage(ctx, m)
	case n < 16:
		return link.ModifyMessage(ctx, m, nil)
	case n < 17:
		return link.ModifyMessage(ctx, m, &sdk.ModifyMessageOptions{UndeliverableHere: true})
	case n < 18:
		return link.RejectMessage(ctx, m, &sdk.Error{Condition: sdk.ErrCond(condDeadLetter), Info: map[string]any{message.PropDeadLetterReason: "stress"}})
	}
	return nil // its lock lapses
}

// transact moves messages from work to sess and to in, all or nothing.
func (a *actor) transact(rounds int) {
	ts := &transactions{now: a.b.Now}
	work, sess, in := a.n.entities.find("work"), a.n.entities.find("sess"), a.n.entities.find("in")
	c := work.queue.NewConsumer(queue.PeekLock)
	defer c.Close()
	for range rounds {
		c.AddCredit(2)
		select {
		case <-c.Ready():
		case <-time.After(10 * time.Second): // others got it all
		}
		c.Drain() // what is not used
		ds, _, _ := c.Take(nil)
		if len(ds) == 0 {
			continue
		}
		id, refusal := ts.declare(nil)
		if refusal != nil {
			a.t.Errorf("declare = %v, want nil", refusal)
			return
		}
		var tokens []queue.LockToken
		for _, d := range ds {
			tokens = append(tokens, d.LockToken)
		}
		one, first := a.note("sess")
		two, second := a.note("in")
		for _, err := range []*amqp.Error{
			ts.settle(id, work, work.queue, queue.Settlement{Outcome: queue.Complete}, tokens, nil, nil),
			ts.send(id, work, sess, []queue.Message{messageOf(one, first, "a")}),
			ts.send(id, work, in, []queue.Message{messageOf(two, second, "b")}),
		} {
			if err != nil {
				ts.doom(id, err)
			}
		}
		a.pause(7 * time.Second) // longer than the locks hold, were they not kept
		fail := a.r.IntN(3) == 0
		committed := ts.discharge(id, fail) == nil && !fail
		for _, m := range []string{one, two} {
			if committed {
				a.know(m, acknowledged)
			} else {
				a.know(m, turnedAway)
			}
		}
		a.add(&a.discharged)
		if committed {
			for _, d := range ds {
				a.complete("work", d.MessageID, true)
			}
		}
	}
}
