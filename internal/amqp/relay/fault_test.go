// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/testing/pipenet"
)

func wantClosed(t *testing.T, what string, err error, condition string) {
	t.Helper()
	var e *goamqp.ConnError
	if !errors.As(err, &e) || e.RemoteErr == nil || string(e.RemoteErr.Condition) != condition {
		t.Errorf("%s = %v, want the connection closed with %s", what, err, condition)
	}
}

// A failure upstream before a connection exists is reported in a close that every SDK takes as a
// reason to connect again.
func TestAClientGetsTheErrorOfAnUnreachableUpstream(t *testing.T) {
	silent := func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }() // until the relay gives up
		return near, nil
	}
	hangs := func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ends := func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, 8))
			far.Close()
		}()
		return near, nil
	}
	talks := func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, 8))
			_, _ = io.WriteString(far, "HTTP/1.1 400 Bad Request\r\n\r\n")
			far.Close()
		}()
		return near, nil
	}
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"refused": func(context.Context) (net.Conn, error) { return nil, errors.New("refused") },
		"hangs":   hangs, "silent": silent, "ends": ends, "talks something else": talks,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, func(c *Config) { c.Dial = dial })
				nc, err := s.dial(t.Context())
				s.must(err)
				c, err := goamqp.NewConn(t.Context(), nc, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
				if err == nil {
					_, err = c.NewSession(t.Context(), nil)
				}
				wantClosed(t, "NewSession", err, "amqp:connection:forced")
			})
		})
	}
}

// The SDK heals on its own, whatever happens to upstream and when: after each
// number of bytes in each direction the connection is cut once.
func TestTheSDKRecoversFromACutUpstreamAnywhere(t *testing.T) {
	for _, dir := range []pipenet.Direction{pipenet.ToListener, pipenet.ToDialer} {
		for n := int64(0); n < 1600; n += 23 {
			t.Run(fmt.Sprintf("%v after %d bytes", dir, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := setup(t, func(c *Config) { c.ErrorLog = nil })
					client := s.client()
					sender, err := client.NewSender("orders", nil)
					s.must(err)
					s.ns.Net.CutAfter(dir, n)
					for i := range 3 {
						s.must(sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte(fmt.Sprint(i))}, nil))
					}
					seen := map[string]bool{}
					for _, b := range s.waiting() {
						seen[b] = true
					}
					if len(seen) != 3 {
						t.Errorf("upstream has %q, want all three that were acknowledged", s.waiting())
					}
				})
			})
		}
	}
}

func TestTheClientIsClosedWhenUpstreamFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, nil)
		session := s.raw(nil)
		sender := s.sender(session, nil)
		s.ns.Net.Stall(pipenet.Both)
		start := time.Now()
		err := sender.Send(t.Context(), text("a"), nil)
		wantClosed(t, "Send", err, "amqp:connection:forced")
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("it took %v to notice, want the idle time-out of upstream or the write's", took)
		}
	})
}

func TestUpstreamIsClosedWhenTheClientFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, nil)
		s.sender(s.raw(nil), nil)
		s.front.Stall(pipenet.Both)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := s.ns.Net.Conns(); n != 0 {
			t.Errorf("%d connections are open upstream, want none", n)
		}
	})
}

// A client that does not read holds up nobody but itself, and not without bound.
func TestWhatAClientDoesNotReadStaysUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, nil)
		other := s.sender(s.raw(nil), nil)
		for range 400 {
			s.must(other.Send(t.Context(), goamqp.NewMessage(make([]byte, 100_000)), nil))
		}
		var before, after runtime.MemStats
		session := s.raw(nil)
		_, err := session.NewReceiver(t.Context(), "orders", &goamqp.ReceiverOptions{Credit: 1000})
		s.must(err)
		runtime.GC()
		runtime.ReadMemStats(&before)
		s.front.Stall(pipenet.ToDialer)
		time.Sleep(10 * time.Second)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grew := int64(after.HeapAlloc) - int64(before.HeapAlloc); grew > 32<<20 {
			t.Errorf("the heap grew by %d MiB, want at most the window of the session and the output", grew>>20)
		}
	})
}

func TestAWindowThatIsOverrunEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := func(d *Delivery) (DeliveryHandler, *amqp.Error) { return newFakeHandler(d, true), nil }
		s := setup(t, func(c *Config) {
			watching(&fakeWatcher{deliver: hold})(c)
			c.IncomingWindow = 4
		})
		p := s.peer()
		p.attachSender("watched", 0, "orders")
		p.attachSender("passing", 1, "others")
		p.tryTransfer(0, 0) // is held, and what follows waits behind it
		for i := range uint32(5) {
			p.tryTransfer(1, 1+i)
		}
		if got := p.expect("end"); !strings.Contains(got, "amqp:session:window-violation") {
			t.Errorf("the client got %s, want a window violation", got)
		}
	})
}

// The sum of many windows is bounded, too: a client is not read while too much
// of what it sent waits.
func TestAClientIsNotReadWhileTooMuchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first *fakeHandler
		w := &fakeWatcher{}
		w.deliver = func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			if first != nil {
				return nil, nil
			}
			first = newFakeHandler(d, true)
			return first, nil
		}
		s := setup(t, func(c *Config) {
			watching(w)(c)
			c.MaxBuffered = 1 << 20
		})
		p := s.peer()
		p.attachSender("link", 0, "orders")
		go func() {
			payload := amqp.AppendData(nil, make([]byte, 60_000))
			for id := range uint32(60) {
				frame := amqp.AppendFrame(nil, 0, &amqp.Transfer{Handle: 0, DeliveryID: id, HasDeliveryID: true, DeliveryTag: []byte{byte(id)}}, payload)
				if _, err := p.nc.Write(frame); err != nil {
					t.Errorf("transfer %d: %v", id, err)
					return
				}
			}
		}()
		time.Sleep(10 * time.Second)
		var c *conn
		for _, c = range s.relay.conns.Living() {
			c.mu.Lock()
			if got := c.sides[client].buffered; got < 1<<20 || got > 2<<20 {
				t.Errorf("%d bytes wait, want a little more than 1 MiB", got)
			}
			c.mu.Unlock()
		}
		first.ready(nil)
		time.Sleep(10 * time.Second)
		if got := len(s.waiting()); got != 60 {
			t.Errorf("upstream has %d messages, want 60", got)
		}
		if got := c.sides[client].buffered; got != 0 {
			t.Errorf("%d bytes are counted when nothing waits, want 0", got)
		}
	})
}

// The pieces of many deliveries come mixed on one connection. None can be complete before the
// others have been read, however many bytes that are. Then they wait for their turn, and the client
// for room, as long as upstream takes some of them now and then.
func TestDeliveriesWhosePiecesComeMixedAllGoOn(t *testing.T) {
	const links, pieces, size = 10, 4, 50_000
	for name, turn := range map[string]time.Duration{"at once": 0, "one by one": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := 0
				s := setup(t, func(c *Config) {
					c.Watch = func(Link) Watcher {
						return &fakeWatcher{deliver: func(*Delivery) (DeliveryHandler, *amqp.Error) {
							turns++
							return lateHandler(time.Duration(turns) * turn), nil
						}}
					}
					c.MaxBuffered = 2 * size
				})
				p := s.peer()
				for l := range uint32(links) {
					p.attachSender(fmt.Sprint("link", l), l, "orders")
				}
				p.came("flow")
				var all []byte
				for i := range pieces + 1 { // the last piece is short
					for l := range uint32(links) {
						frame := &amqp.Transfer{Handle: l, HasDeliveryID: true, DeliveryID: l, DeliveryTag: []byte{byte(l)}, More: i < pieces}
						message := amqp.AppendData(nil, make([]byte, pieces*size))
						all = amqp.AppendFrame(all, 0, frame, message[min(i*size, len(message)):min((i+1)*size, len(message))])
					}
				}
				go func() {
					if _, err := p.nc.Write(all); err != nil {
						t.Errorf("the client could not send: %v", err)
					}
				}()
				time.Sleep(links * turn)
				if got := p.came("disposition", "detach", "end", "close"); len(got) != links {
					t.Errorf("the client got %q, want %d outcomes", got, links)
				}
				if got := len(s.waiting()); got != links {
					t.Errorf("upstream has %d messages, want %d", got, links)
				}
			})
		})
	}
}

// A lateHandler lets its delivery go on after a time.
type lateHandler time.Duration

func (h lateHandler) Before(r Resumer) bool {
	time.AfterFunc(time.Duration(h), func() { r.Resume(nil) })
	return true
}

func (lateHandler) Settled(_ amqp.DeliveryState, answerer Answerer) { answerer.Answer(nil) }

func TestASenderThatIgnoresCreditIsStoppedByUpstream(t *testing.T) {
	for name, configure := range map[string]func(*Config){
		"passing": nil,
		"watched": func(c *Config) { c.Watch = func(Link) Watcher { return passThrough{} } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, configure)
				p := s.peer()
				p.attachSender("link", 0, "orders")
				go func() {
					for i := range uint32(20_000) {
						if !p.tryTransfer(0, i) {
							return
						}
					}
				}()
				if got := p.expect("detach", "end", "close"); !strings.Contains(got, "amqp:") {
					t.Errorf("the sender got %s, want an error", got)
				}
			})
		})
	}
}

func TestShutdownWaitsForWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handlers []*fakeHandler
		s := setup(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			handlers = append(handlers, newFakeHandler(d, false))
			return handlers[len(handlers)-1], nil
		}}))
		sender := s.sender(s.raw(nil), nil)
		a := s.send(sender, text("a"))
		down := make(chan error, 1)
		go func() { down <- s.relay.Shutdown(t.Context()) }()
		pending(t, "Shutdown", down)
		b := s.send(sender, text("b"))
		(<-handlers[0].answer)(nil)
		if err := <-a; err != nil {
			t.Errorf("send before the shutdown = %v, want accepted", err)
		}
		if err := <-down; err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		wantClosed(t, "send during the shutdown", <-b, "amqp:connection:forced")
		if got := fmt.Sprint(s.waiting()); got != "[a]" {
			t.Errorf("upstream has %s, want [a]", got)
		}
	})
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) { return newFakeHandler(d, true), nil }}))
		sender := s.sender(s.raw(nil), nil)
		a := s.send(sender, text("a"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := s.relay.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown = %v, want DeadlineExceeded", err)
		}
		if err := <-a; err == nil {
			t.Error("send = nil, want the error of the end")
		}
	})
}
