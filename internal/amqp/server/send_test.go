// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"overdue/internal/amqp"
	"overdue/internal/testing/testseed"
)

func TestFrameThatThePeerCannotTakeClosesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open(func(o *amqp.Open) { o.MaxFrameSize = 512 })
		p.begin(0)
		a := rawAttach(0, amqp.RoleSender, "refuse"+string(make([]byte, 1000)))
		a.Name, a.Source = "n", nil
		p.send(0, a, nil) // refused at length: the description is cut
		expect[*amqp.Attach](p)
		if d := expect[*amqp.Detach](p); cond(d.Error) != "amqp:not-found" || len(d.Error.Description) != amqp.MaxShortDescription {
			t.Errorf("detach with %d bytes of description, want %d", len(d.Error.Description), amqp.MaxShortDescription)
		}
		a = rawAttach(1, amqp.RoleSender, "sink")
		a.Target.DynamicNodeProperties = amqp.AppendBinary(nil, make([]byte, 2000))
		p.send(0, a, nil) // the echoed target does not fit
		if c := expect[*amqp.Close](p); cond(c.Error) != string(amqp.ErrCondFrameSizeTooSmall) {
			t.Errorf("close = %v, want frame-size-too-small", c.Error)
		}
	})
}

// sourceHandler hands its source links to the test.
type sourceHandler struct {
	links chan *SourceLink
	flows chan Flow
}

func (h *sourceHandler) Connect(*Conn) (ConnHandler, *amqp.Error) { return h, nil }

func (h *sourceHandler) Closed(error) {}

func (h *sourceHandler) AttachSink(*SinkLink) (Sink, *amqp.Error) {
	return nil, &amqp.Error{Condition: amqp.ErrCondNotAllowed}
}

func (h *sourceHandler) AttachSource(l *SourceLink) (Source, *amqp.Error) {
	h.links <- l
	return h, nil
}

func (h *sourceHandler) Flow(f Flow) { h.flows <- f }

func (h *sourceHandler) Disposition([]*Outgone, amqp.DeliveryState, bool) {}

func (h *sourceHandler) Detached(*amqp.Error) {}

func setupSource(t testing.TB, sc *scene) *sourceHandler {
	h := &sourceHandler{links: make(chan *SourceLink, 1), flows: make(chan Flow, 100)}
	sc.srv.cfg.Handler = h
	return h
}

func out(tag string, size int) Outgoing {
	return Outgoing{Tag: []byte(tag), Payload: make([]byte, size), Token: tag}
}

func TestPostedMessagesWaitForCreditAndKeepTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		h := setupSource(t, sc)
		p := sc.raw()
		p.open(func(o *amqp.Open) { o.MaxFrameSize = 512 })
		p.begin(0)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		l := <-h.links
		for i := range 20 {
			if err := l.Post(out(fmt.Sprint(i), i*100)); err != nil {
				t.Fatalf("Post %d: %v", i, err)
			}
		}
		if _, err := l.SendOut(out("x", 1)); !errors.Is(err, ErrNoCredit) {
			t.Errorf("SendOut = %v, want ErrNoCredit", err)
		}
		f := linkFlow(0, 0, 5)
		p.send(0, f, nil)
		tags := func(n int) (got []string) {
			for len(got) < n {
				tr := expect[*amqp.Transfer](p)
				if tr.HasDeliveryID {
					got = append(got, string(tr.DeliveryTag))
				}
			}
			return got
		}
		if got := fmt.Sprint(tags(5)); got != "[0 1 2 3 4]" {
			t.Errorf("tags = %s, want [0 1 2 3 4]", got)
		}
		f = linkFlow(0, 5, 20)
		f.Drain, f.NextIncomingID = true, 5
		p.send(0, f, nil)
		if got := (Flow{Credit: 20, Added: 20, Drain: true}); <-h.flows != (Flow{Credit: 5, Added: 5}) || <-h.flows != got {
			t.Errorf("Flow differs from what the peer granted")
		}
		l.Drained() // while posted messages are on their way
		if got := fmt.Sprint(tags(15)); got != "[5 6 7 8 9 10 11 12 13 14 15 16 17 18 19]" {
			t.Errorf("tags = %s, want 5 to 19", got)
		}
		for {
			f := p.next()
			if _, ok := f.(*amqp.Transfer); ok {
				continue
			}
			if fl, ok := f.(*amqp.Flow); !ok || !fl.Drain || fl.DeliveryCount != 25 || fl.LinkCredit != 0 {
				t.Errorf("got %s, want the answer to the drain", amqp.Trace(f, 0))
			}
			break
		}
		for i := range maxPosted + 1 {
			if err := l.Post(out("y", 0)); (err != nil) != (i == maxPosted) {
				t.Fatalf("Post %d = %v", i, err)
			}
		}
		p.send(0, &amqp.Detach{Closed: true}, nil)
		expect[*amqp.Detach](p)
		if err := l.Post(out("z", 0)); !errors.Is(err, ErrLinkGone) {
			t.Errorf("Post = %v, want ErrLinkGone", err)
		}
	})
}

func TestUnsettledDeliveriesAreLimited(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		h := setupSource(t, sc)
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		p.send(0, linkFlow(0, 0, 100), nil)
		l := <-h.links
		<-h.flows
		for i := range 11 {
			if _, err := l.SendOut(out("x", 1)); (err == nil) != (i < 10) {
				t.Fatalf("SendOut %d = %v", i, err)
			}
		}
		for range 10 {
			expect[*amqp.Transfer](p)
		}
		if d := expect[*amqp.Detach](p); cond(d.Error) != string(amqp.ErrCondResourceLimitExceeded) {
			t.Errorf("detach = %v, want resource-limit-exceeded", d.Error)
		}
	}, func(c *Config) { c.MaxUnsettled = 10 })
}

// Many goroutines send on few links of one session, large and small, settle and post, while the
// peer settles in ranges. Every delivery arrives whole and once, and on the wire ids rise.
func TestConcurrentSendersOnOneSession(t *testing.T) {
	seed := testseed.Of(t)
	bubble(t, func(t *testing.T, sc *scene) {
		h := setupSource(t, sc)
		p := sc.raw()
		p.open(func(o *amqp.Open) { o.MaxFrameSize = 512 })
		p.begin(0)
		var links []*SourceLink
		for i := range uint32(3) {
			p.attach(0, i, amqp.RoleReceiver, "q")
			links = append(links, <-h.links)
			p.send(0, linkFlow(i, 0, 1000), nil)
			<-h.flows
		}
		const senders, each = 12, 50
		var wg sync.WaitGroup
		for i := range senders {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				l := links[i%3]
				for range each {
					o := out("tag", rnd.IntN(2000))
					var err error
					if rnd.IntN(4) == 0 {
						err = l.Post(o)
					} else {
						_, err = l.SendOut(o)
					}
					if err != nil {
						t.Errorf("sending: %v", err)
						return
					}
				}
			})
		}
		next, open, frames := uint32(0), map[uint32]bool{}, uint32(0)
		for done := 0; done < senders*each; {
			tr := expect[*amqp.Transfer](p)
			frames++
			if tr.HasDeliveryID {
				if tr.DeliveryID != next || open[tr.Handle] {
					t.Fatalf("delivery %d on handle %d (in the midst of another: %v), want %d", tr.DeliveryID, tr.Handle, open[tr.Handle], next)
				}
				next++
			} else if !open[tr.Handle] {
				t.Fatalf("handle %d goes on with a delivery that has not begun", tr.Handle)
			}
			if open[tr.Handle] = tr.More; !tr.More {
				done++
			}
			if frames%100 == 0 {
				p.send(0, &amqp.Flow{HasNextIncomingID: true, NextIncomingID: frames, IncomingWindow: 150, OutgoingWindow: 10}, nil)
				p.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: 0, Last: next, Settled: true, State: amqp.Accepted{}}, nil)
			}
		}
		wg.Wait()
	})
}
