// SPDX-License-Identifier: Apache-2.0

package amqpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
)

func TestConnectionIsHeldForADayByKeepAlives(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		// The client asks for a frame a minute and sends one for our 4 minutes.
		conn := sc.dial(nil, &goamqp.ConnOptions{IdleTimeout: time.Minute, SASLType: goamqp.SASLTypeAnonymous()})
		s := session(t, conn)
		sender, err := s.NewSender(ctx, "q", nil)
		if err != nil {
			t.Fatalf("NewSender: %v", err)
		}
		time.Sleep(24 * time.Hour)
		if err := sender.Send(ctx, goamqp.NewMessage([]byte("x")), nil); err != nil {
			t.Errorf("Send after a day: %v", err)
		}
	})
}

func TestKeepAlivesComeAtHalfOfThePeersTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open(func(o *amqp.Open) { o.IdleTimeout = 10_000 })
		start := time.Now()
		for i := range 5 {
			f := <-p.frames
			if want := time.Duration(i+1) * 5 * time.Second; f != nil || time.Since(start) != want {
				t.Fatalf("frame %d is %v after %v, want a keep-alive after %v", i, f, time.Since(start), want)
			}
		}
	}, func(c *Config) { c.IdleTimeout = time.Hour })
}

func TestSilentPeerIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		start := time.Now()
		for time.Since(start) < time.Hour {
			time.Sleep(7 * time.Minute)
			p.write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
		}
		start = time.Now()
		f := <-p.frames
		if c, ok := f.(*amqp.Close); !ok || c.Error == nil {
			t.Fatalf("got %T, want close with an error", f)
		}
		if got := time.Since(start); got != 8*time.Minute {
			t.Errorf("closed after %v, want 8m", got)
		}
		if err := <-sc.errs; !errors.Is(err, errSilent) {
			t.Errorf("ServeConn = %v, want errSilent", err)
		}
	})
}

func TestStalledReaderIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		// It reads nothing at all, not even the header.
		nc := sc.pipe()
		if _, err := nc.Write(amqp.ProtoAMQP[:]); err != nil {
			t.Fatalf("Write: %v", err)
		}
		start := time.Now()
		if err := <-sc.errs; err == nil {
			t.Error("ServeConn = nil, want an error")
		}
		if got := time.Since(start); got > 35*time.Second {
			t.Errorf("dropped after %v, want 35s at most", got)
		}
	})
}

// A peer that stops reading while a source sends to it holds up that source, not the memory, and not for ever.
func TestStalledReaderOfDeliveriesIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		q := sc.echo.queue("q")
		for range 10_000 {
			q.put(make([]byte, 1000))
		}
		nc := sc.pipe()
		b := append([]byte(nil), amqp.ProtoAMQP[:]...)
		b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "stalled", MaxFrameSize: 65536}, nil)
		b = amqp.AppendFrame(b, 0, &amqp.Begin{IncomingWindow: 1 << 30, OutgoingWindow: 10, HandleMax: 10}, nil)
		b = amqp.AppendFrame(b, 0, rawAttach(0, amqp.RoleReceiver, "q"), nil)
		f := linkFlow(0, 0, 1<<30)
		f.IncomingWindow = 1 << 30
		b = amqp.AppendFrame(b, 0, f, nil)
		if _, err := nc.Write(b); err != nil {
			t.Fatalf("Write: %v", err)
		}
		start := time.Now()
		synctest.Wait()
		q.mu.Lock()
		sent := 10_000 - len(q.messages)
		q.mu.Unlock()
		if sent < 10 || sent > 1000 {
			t.Errorf("%d messages were taken for a peer that does not read, want a buffer full", sent)
		}
		if err := <-sc.errs; err == nil {
			t.Error("ServeConn = nil, want an error")
		}
		if got := time.Since(start); got != 30*time.Second {
			t.Errorf("dropped after %v, want 30s", got)
		}
	})
}

// A peer that asks and does not read the answers stops being read.
func TestUnreadAnswersStopTheReadLoop(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		nc := sc.pipe()
		b := append([]byte(nil), amqp.ProtoAMQP[:]...)
		b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "stalled", MaxFrameSize: 65536}, nil)
		b = amqp.AppendFrame(b, 0, &amqp.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10}, nil)
		if _, err := nc.Write(b); err != nil {
			t.Fatalf("Write: %v", err)
		}
		echo := amqp.AppendFrame(nil, 0, &amqp.Flow{IncomingWindow: 10, OutgoingWindow: 10, Echo: true}, nil)
		var flood []byte
		for range 1000 {
			flood = append(flood, echo...)
		}
		written := 0
		for {
			n, err := nc.Write(flood)
			written += n
			if err != nil {
				break
			}
			if written > 64<<20 {
				t.Fatalf("%d bytes of questions were taken", written)
			}
		}
		if err := <-sc.errs; err == nil {
			t.Error("ServeConn = nil, want an error")
		}
	})
}

func TestAbruptEndTellsTheHandler(t *testing.T) {
	abrupt := func(t *testing.T, sc *scene, dial func() net.Conn) {
		for range 20 {
			p := sc.rawOver(dial())
			p.open()
			p.begin(0)
			p.attach(0, 0, amqp.RoleReceiver, "q")
			p.attach(0, 1, amqp.RoleSender, "sink")
			p.nc.Close()
		}
		sc.awaitNotes(60)
		links := 0
		for _, n := range sc.echo.notes() {
			if n == "source q: amqp:connection:forced" || n == "sink sink: amqp:connection:forced" {
				links++
			}
		}
		if links != 40 {
			t.Errorf("%d links were told that they are over, want 40: %q", links, sc.echo.notes())
		}
	}
	t.Run("pipe", func(t *testing.T) {
		bubble(t, func(t *testing.T, sc *scene) { abrupt(t, sc, sc.pipe) })
	})
	t.Run("tcp", func(t *testing.T) {
		sc := setup(t)
		address := sc.listen()
		abrupt(t, sc, func() net.Conn {
			nc, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatalf("Dial: %v", err)
			}
			return nc
		})
	})
}

func (sc *scene) awaitNotes(n int) {
	sc.t.Helper()
	for range 5000 {
		if len(sc.echo.notes()) >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	sc.t.Fatalf("handler noted %q, want %d notes", sc.echo.notes(), n)
}

func TestShutdownDoesNotWaitForAStalledPeer(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		nc := sc.pipe()
		b := append([]byte(nil), amqp.ProtoAMQP[:]...)
		b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "stalled", MaxFrameSize: 65536}, nil)
		if _, err := nc.Write(b); err != nil {
			t.Fatalf("Write: %v", err)
		}
		sc.pipe() // and one that has said nothing
		synctest.Wait()
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := sc.srv.Shutdown(limited); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown = %v, want its deadline exceeded", err)
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("Shutdown took %v, want 1s", got)
		}
	})
	bubble(t, func(t *testing.T, sc *scene) { // without a deadline, our own bound holds
		p := sc.raw()
		p.open()
		start := time.Now()
		if err := sc.srv.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if got := time.Since(start); got != 5*time.Second {
			t.Errorf("Shutdown took %v, want 5s", got)
		}
		if c := expect[*amqp.Close](p); cond(c.Error) != string(amqp.ErrCondConnectionForced) {
			t.Errorf("close = %v, want connection:forced", c.Error)
		}
	})
}

func TestConnectionsAreLimited(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		if err := sc.srv.ServeConn(sc.pipeEnd()); !errors.Is(err, ErrTooManyConns) {
			t.Errorf("ServeConn = %v, want ErrTooManyConns", err)
		}
		p.nc.Close()
		synctest.Wait()
		q := sc.raw()
		q.open()
	}, func(c *Config) { c.MaxConns = 1 })
}

func TestFrameThatThePeerCannotTakeClosesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open(func(o *amqp.Open) { o.MaxFrameSize = 512 })
		p.begin(0)
		a := rawAttach(0, amqp.RoleSender, "refuse"+string(make([]byte, 2000)))
		a.Name, a.Source = "n", nil
		p.send(0, a, nil) // refused at length: the description is cut
		expect[*amqp.Attach](p)
		if d := expect[*amqp.Detach](p); cond(d.Error) != "amqp:not-found" || len(d.Error.Description) != maxDescription {
			t.Errorf("detach with %d bytes of description, want %d", len(d.Error.Description), maxDescription)
		}
		a = rawAttach(1, amqp.RoleSender, "sink"+string(make([]byte, 2000)))
		p.send(0, a, nil) // the echoed target does not fit
		if c := expect[*amqp.Close](p); cond(c.Error) != string(amqp.ErrCondFrameSizeTooSmall) {
			t.Errorf("close = %v, want frame-size-too-small", c.Error)
		}
	})
}

// sourceHandler hands its source links to the test.
type sourceHandler struct {
	echo
	links chan *SourceLink
	flows chan Flow
}

func (h *sourceHandler) Connect(*Conn) (ConnHandler, *amqp.Error) { return h, nil }
func (h *sourceHandler) Closed(error)                             {}
func (h *sourceHandler) AttachSink(*SinkLink) (Sink, *amqp.Error) {
	return nil, &amqp.Error{Condition: amqp.ErrCondNotAllowed}
}
func (h *sourceHandler) AttachSource(l *SourceLink) (Source, *amqp.Error) {
	h.links <- l
	return h, nil
}
func (h *sourceHandler) Flow(f Flow)                                      { h.flows <- f }
func (h *sourceHandler) Disposition([]*Outgone, amqp.DeliveryState, bool) {}
func (h *sourceHandler) Detached(*amqp.Error)                             {}

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

// Many goroutines send on few links of one session, large and small, settle and post, while the peer settles in ranges:
// every delivery arrives whole and once, on the wire ids rise.
func TestConcurrentSendersOnOneSession(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
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

func TestTCPPeerThatNeverReadsItsClose(t *testing.T) {
	sc := setup(t, func(c *Config) { c.CloseTimeout = 50 * time.Millisecond })
	nc, err := net.Dial("tcp", sc.listen())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer nc.Close()
	b := append([]byte(nil), amqp.ProtoAMQP[:]...)
	b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "x", MaxFrameSize: 65536}, nil)
	b = append(b, 0x7f, 0, 0, 0, 2, 0, 0, 0)
	b = append(b, make([]byte, 100_000)...) // unread by the server when it refuses
	if _, err := nc.Write(b); err != nil {
		t.Fatalf("Write: %v", err)
	}
	got, err := io.ReadAll(nc)
	if err != nil {
		t.Errorf("reading to the end: %v", err)
	}
	if want := "framing-error"; !contains(got, want) {
		t.Errorf("%q does not say %s", got, want)
	}
}

func contains(b []byte, s string) bool {
	for i := range len(b) - len(s) + 1 {
		if string(b[i:i+len(s)]) == s {
			return true
		}
	}
	return false
}
