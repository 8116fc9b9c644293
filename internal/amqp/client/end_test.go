// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
	"overdue/internal/testing/pipenet"
)

// When a sender ends, for any reason, the Sends that wait get that reason, and so do the next.
func TestAnEndReachesEverySend(t *testing.T) {
	reason := amqp.Errorf("x:why", "because")
	for name, tt := range map[string]struct {
		end    func(*peer, *Conn, *Sender)
		want   EndedError
		cause  error
		answer string // of the client
	}{
		"detach": {func(p *peer, _ *Conn, _ *Sender) {
			p.send(peerChannel, &amqp.Detach{Handle: peerHandle, Closed: true, Error: reason}, nil)
		}, EndedError{Scope: Link, Remote: reason}, nil, "detach"},
		"detach, no reason":  {func(p *peer, _ *Conn, _ *Sender) { p.send(peerChannel, &amqp.Detach{Handle: peerHandle}, nil) }, EndedError{Scope: Link}, nil, "detach"},
		"end":                {func(p *peer, _ *Conn, _ *Sender) { p.send(peerChannel, &amqp.End{Error: reason}, nil) }, EndedError{Scope: Session, Remote: reason}, nil, "end"},
		"close":              {func(p *peer, _ *Conn, _ *Sender) { p.send(0, &amqp.Close{Error: reason}, nil) }, EndedError{Scope: Connection, Remote: reason}, nil, "close"},
		"hung up":            {func(p *peer, _ *Conn, _ *Sender) { _ = p.nc.Close() }, EndedError{Scope: Connection}, nil, ""},
		"cut":                {func(p *peer, _ *Conn, _ *Sender) { p.net.Cut() }, EndedError{Scope: Connection}, syscall.ECONNRESET, ""},
		"closed here":        {func(_ *peer, c *Conn, _ *Sender) { _ = c.Close() }, EndedError{Scope: Connection}, nil, "close"},
		"sender closed here": {func(_ *peer, _ *Conn, s *Sender) { s.Close(context.Background()) }, EndedError{Scope: Session}, nil, "end"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, plain, func(p *peer, c *Conn) {
				s := attachSender(p, c, 0, 1)
				results := sendAll(p.Context(), s, "in flight", "without credit")
				tt.end(p, c, s)
				synctest.Wait()
				results = append(results, sendAll(p.Context(), s, "afterwards")[0])
				for i, r := range results {
					var ended *EndedError
					if err := <-r; !errors.As(err, &ended) || ended.Scope != tt.want.Scope || tt.cause != nil && !errors.Is(err, tt.cause) {
						t.Fatalf("Send %d = %v, want %v", i, err, &tt.want)
					} else if (ended.Remote == nil) != (tt.want.Remote == nil) || ended.Remote != nil && ended.Remote.Condition != tt.want.Remote.Condition {
						t.Errorf("Send %d = %v, want %v", i, err, &tt.want)
					}
				}
				if got := strings.Join(p.kinds(), "; "); !strings.Contains(strings.ToLower(got), tt.answer) {
					t.Errorf("the client answers %q, want %q", got, tt.answer)
				}
				select {
				case <-c.Done():
					if tt.want.Scope != Connection {
						t.Error("the connection has ended with it")
					}
				default:
					if tt.want.Scope == Connection {
						t.Error("the connection has not ended")
					}
				}
			})
		})
	}
}

func TestASenderCanBeAttachedAgain(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		for i := range 30 { // more than channels, unless they are used again
			by := []string{"the peer", "the client"}[i%2] // detaches
			s := attachSender(p, c, 0, 1)
			go func() {
				next[*amqp.Transfer](p)
				p.send(peerChannel, &amqp.Disposition{Role: amqp.RoleReceiver, Settled: true, State: amqp.Accepted{}}, nil)
				if by == "the peer" {
					p.send(peerChannel, &amqp.Detach{Handle: peerHandle, Closed: true}, nil)
					next[*amqp.Detach](p)
				}
				next[*amqp.End](p)
				p.send(peerChannel, &amqp.End{}, nil)
			}()
			if err := s.Send(p.Context(), 0, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if by == "the client" {
				s.Close(p.Context())
			}
			synctest.Wait()
		}
	})
}

func TestARefusedAttachIsWhatThePeerSays(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		go func() {
			p.begin(10)
			a, _ := next[*amqp.Attach](p)
			p.send(peerChannel, &amqp.Attach{Name: a.Name, Handle: 3, Role: amqp.RoleReceiver}, nil)
			p.send(peerChannel, &amqp.Detach{Handle: 3, Closed: true, Error: amqp.Errorf(amqp.ErrCondNotFound, "no such thing")}, nil)
			next[*amqp.Detach](p)
			next[*amqp.End](p)
			p.send(peerChannel, &amqp.End{}, nil)
		}()
		_, err := c.Sender(p.Context(), "orders")
		var refused *amqp.Error
		var ended *EndedError
		if !errors.As(err, &refused) || refused.Condition != amqp.ErrCondNotFound || errors.As(err, &ended) {
			t.Errorf("Sender = %v, want what the peer says", err)
		}
		synctest.Wait()
		attachSender(p, c, 0, 1) // the connection lives on
	})
}

func TestASilentPeerKeepsNobodyWaiting(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		began := time.Now()
		if _, err := c.Sender(within(p.T, 3*time.Second), "orders"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("Sender = %v after %v, want that time is up after 3s", err, time.Since(began))
		}
	})
	for _, says := range []string{"", "AMQP\x03\x01\x00\x00", "AMQP\x02\x01\x00\x00", "HTTP/1.1 400 Bad Request\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			p, nc := connect(t)
			go func() {
				_, _ = p.nc.Read(make([]byte, 8))
				p.write([]byte(says))
			}()
			began := time.Now()
			_, err := Open(within(t, 3*time.Second), nc, "overdue.test")
			if late := errors.Is(err, context.DeadlineExceeded); err == nil || late != (len(says) == 0 || says[4] == 3) || late && time.Since(began) != 3*time.Second {
				t.Errorf("Open where the peer says %q = %v after %v", says, err, time.Since(began))
			}
			_ = nc.Close()
		})
	}
}

func TestAConnectionMayBeRefused(t *testing.T) {
	closing := &amqp.Close{Error: amqp.Errorf("x:full", "no more")}
	for want, says := range map[string][]byte{
		"does not offer": amqp.AppendSASLFrame(amqp.ProtoSASL[:], &amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"PLAIN"}}),
		"is refused":     amqp.AppendSASLFrame(amqp.AppendSASLFrame(amqp.ProtoSASL[:], &amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"ANONYMOUS"}}), &amqp.SASLOutcome{Code: amqp.SASLAuth}),
		"x:full": amqp.AppendFrame(append(amqp.AppendSASLFrame(amqp.AppendSASLFrame(amqp.ProtoSASL[:],
			&amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"ANONYMOUS"}}), &amqp.SASLOutcome{}), amqp.ProtoAMQP[:]...), 0, closing, nil),
	} {
		synctest.Test(t, func(t *testing.T) {
			p, nc := connect(t)
			go func() {
				_, _ = p.nc.Read(make([]byte, 8))
				go p.write(says)
				for b := make([]byte, 100); ; {
					if _, err := p.nc.Read(b); err != nil {
						return
					}
				}
			}()
			if _, err := Open(t.Context(), nc, "overdue.test"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Open = %v, want that it %s", err, want)
			}
			_ = nc.Close()
		})
	}
}

func TestBothEndsKeepAQuietConnectionAlive(t *testing.T) {
	open := *plain
	open.IdleTimeout = 10_000
	play(t, &open, func(p *peer, c *Conn) {
		go func() {
			for range 10 { // five minutes
				time.Sleep(30 * time.Second)
				p.write(amqp.AppendFrame(nil, 0, nil, nil))
			}
		}()
		time.Sleep(5*time.Minute + time.Millisecond)
		synctest.Wait()
		if got := p.kinds(); len(got) != 60 || got[0] != "keep-alive" {
			t.Errorf("%d frames in five minutes, want a keep-alive in five seconds", len(got))
		}
		select {
		case <-c.Done():
			t.Error("the connection has ended though the peer was heard")
		default:
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var ended *EndedError
		if _, err := c.Sender(p.Context(), "orders"); !errors.As(err, &ended) || !errors.Is(err, transport.ErrSilent) {
			t.Errorf("Sender after a minute of silence = %v, want that", err)
		}
	})
}

// A peer that breaks the protocol gets an error, and the connection ends.
func TestAPeerThatBreaksTheProtocolGetsAnError(t *testing.T) {
	frame := func(channel uint16, p amqp.Performative) []byte {
		return amqp.AppendFrame(nil, channel, p, []byte("x"))
	}
	for name, b := range map[string][]byte{
		"too large":            {0, 2, 0, 0, 2, 0, 0, 0},
		"SASL":                 amqp.AppendSASLFrame(nil, &amqp.SASLOutcome{}),
		"no performative":      {0, 0, 0, 10, 2, 0, 0, 0, 1, 2},
		"transfer":             frame(peerChannel, &amqp.Transfer{Handle: peerHandle}),
		"transfer elsewhere":   frame(peerChannel, &amqp.Transfer{Handle: 1}),
		"no session":           frame(3, &amqp.Transfer{}),
		"open":                 frame(peerChannel, &amqp.Open{ContainerID: "x"}),
		"begin":                frame(3, &amqp.Begin{}),
		"second begin":         frame(3, &amqp.Begin{HasRemoteChannel: true}),
		"begin of no session":  frame(3, &amqp.Begin{HasRemoteChannel: true, RemoteChannel: 65535}),
		"attach":               frame(peerChannel, &amqp.Attach{Name: "theirs"}),
		"attach on no session": frame(3, &amqp.Attach{Name: "theirs"}),
	} {
		t.Run(name, func(t *testing.T) {
			play(t, plain, func(p *peer, c *Conn) {
				s := attachSender(p, c, 0, 10)
				waits := sendAll(p.Context(), s, "x")[0]
				next[*amqp.Transfer](p)
				p.write(b)
				if said, _ := next[*amqp.Close](p); said.Error == nil {
					t.Error("a close without a reason")
				}
				var ended *EndedError
				if err := <-waits; !errors.As(err, &ended) || ended.Scope != Connection || ended.Cause == nil {
					t.Errorf("Send = %v, want the cause", err)
				}
				if _, err := p.nc.Read(make([]byte, 1)); err == nil {
					t.Error("the connection stands")
				}
			})
		})
	}
}

// A peer that asks all the time and does not read fills no memory.
func TestAPeerThatAsksAndDoesNotReadIsGivenUp(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		attachSender(p, c, 0, 10)
		p.net.Stall(pipenet.ToListener)
		echo := amqp.AppendFrame(nil, peerChannel, &amqp.Flow{IncomingWindow: 1000, Echo: true}, nil)
		for range maxAnswers + 10 {
			if _, err := p.nc.Write(echo); err != nil {
				break
			}
		}
		synctest.Wait()
		select {
		case <-c.Done():
		default:
			t.Errorf("the connection stands with %d answers to be read", c.answers)
		}
		p.net.Resume(pipenet.ToListener)
	})
}

// A write that cannot go on does not hold up the end.
func TestCloseDoesNotWaitForAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, nc := connect(t)
		go p.handshake(plain)
		c, err := Open(t.Context(), nc, "overdue.test")
		if err != nil {
			t.Fatal(err)
		}
		s := attachSender(p, c, 0, 10)
		p.net.Stall(pipenet.ToListener)
		waits := sendAll(t.Context(), s, "x")[0]
		began := time.Now()
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) || time.Since(began) > closeTimeout {
			t.Errorf("Close = %v after %v", err, time.Since(began))
		}
		if err := <-waits; err == nil {
			t.Error("Send = nil, want that the connection has ended")
		}
		p.net.Resume(pipenet.ToListener)
	})
}
