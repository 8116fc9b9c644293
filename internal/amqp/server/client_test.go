// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
)

var ctx = context.Background()

func TestSettleModesAreEchoed(t *testing.T) {
	both(t, func(t *testing.T, sc *scene, dial func() *goamqp.Conn) {
		s := session(t, dial())
		for _, snd := range []*goamqp.SenderSettleMode{nil, goamqp.SenderSettleModeUnsettled.Ptr(), goamqp.SenderSettleModeSettled.Ptr(), goamqp.SenderSettleModeMixed.Ptr()} {
			for _, rcv := range []*goamqp.ReceiverSettleMode{nil, goamqp.ReceiverSettleModeFirst.Ptr(), goamqp.ReceiverSettleModeSecond.Ptr()} {
				sender, err := s.NewSender(ctx, "q", &goamqp.SenderOptions{SettlementMode: snd, RequestedReceiverSettleMode: rcv})
				if err != nil {
					t.Fatalf("NewSender(snd %v, rcv %v): %v", snd, rcv, err)
				}
				if got := sender.MaxMessageSize(); got != 1<<20 {
					t.Errorf("MaxMessageSize = %d, want %d", got, 1<<20)
				}
				r, err := s.NewReceiver(ctx, "q", &goamqp.ReceiverOptions{RequestedSenderSettleMode: snd, SettlementMode: rcv})
				if err != nil {
					t.Fatalf("NewReceiver(snd %v, rcv %v): %v", snd, rcv, err)
				}
				if err := errors.Join(sender.Close(ctx), r.Close(ctx)); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
		}
	})
}

func TestMessagesOfEverySizePassBothWays(t *testing.T) {
	for _, server := range []uint32{512, 65536} {
		for _, client := range []uint32{512, 65536} {
			t.Run(fmt.Sprintf("server %d client %d", server, client), func(t *testing.T) {
				bubble(t, func(t *testing.T, sc *scene) {
					conn := sc.dial(nil, &goamqp.ConnOptions{MaxFrameSize: client, SASLType: goamqp.SASLTypeAnonymous()})
					s := session(t, conn)
					sender, err := s.NewSender(ctx, "q", nil)
					if err != nil {
						t.Fatalf("NewSender: %v", err)
					}
					r, err := s.NewReceiver(ctx, "q", &goamqp.ReceiverOptions{SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr()})
					if err != nil {
						t.Fatalf("NewReceiver: %v", err)
					}
					for _, size := range []int{0, 1, 400, 450, 470, 480, 490, 500, 512, 513, 1000, 65000, 65480, 65500, 65536, 200_000, 1<<20 - 100} {
						want := bytes.Repeat([]byte{byte(size)}, size)
						if err := sender.Send(ctx, goamqp.NewMessage(want), nil); err != nil {
							t.Fatalf("Send %d bytes: %v", size, err)
						}
						m, err := r.Receive(ctx, nil)
						if err != nil {
							t.Fatalf("Receive %d bytes: %v", size, err)
						}
						if got := m.GetData(); !bytes.Equal(got, want) {
							t.Fatalf("received %d bytes that differ from the %d sent", len(got), size)
						}
						if err := r.AcceptMessage(ctx, m); err != nil {
							t.Fatalf("Accept: %v", err)
						}
					}
				}, func(c *Config) { c.MaxFrameSize = server })
			})
		}
	}
}

func TestMessageAboveMaxMessageSizeIsRejectedAndDetachesTheLink(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		// go-amqp itself refuses messages above the stated limit, so the raw peer sends this.
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "hold")
		p.send(0, &amqp.Transfer{Handle: 0, DeliveryID: 0, HasDeliveryID: true, DeliveryTag: []byte("a"), More: true}, make([]byte, 800))
		p.send(0, &amqp.Transfer{Handle: 0, More: true}, make([]byte, 300))
		outcome := expect[*amqp.Disposition](p)
		if r, _ := outcome.State.(*amqp.Rejected); r == nil || cond(r.Error) != string(amqp.ErrCondLinkMessageSizeExceeded) || !outcome.Settled || outcome.First != 0 {
			t.Errorf("disposition = %+v, want delivery 0 rejected and settled with amqp:link:message-size-exceeded", outcome)
		}
		d := expect[*amqp.Detach](p)
		if got := cond(d.Error); got != string(amqp.ErrCondLinkMessageSizeExceeded) || !d.Closed {
			t.Errorf("detach closed=%v %s, want closed=true amqp:link:message-size-exceeded", d.Closed, got)
		}
		// The session lives on.
		p.send(0, &amqp.Detach{Handle: 0, Closed: true}, nil)
		p.attach(0, 0, amqp.RoleSender, "hold")
	}, func(c *Config) { c.MaxMessageSize = 1000 })
}

func TestOutcomesReachTheSource(t *testing.T) {
	for _, mode := range []goamqp.ReceiverSettleMode{goamqp.ReceiverSettleModeFirst, goamqp.ReceiverSettleModeSecond} {
		t.Run(mode.String(), func(t *testing.T) {
			both(t, func(t *testing.T, sc *scene, dial func() *goamqp.Conn) {
				s := session(t, dial())
				q := sc.echo.queue("q")
				q.put(encode("one"))
				r, err := s.NewReceiver(ctx, "q", &goamqp.ReceiverOptions{SettlementMode: &mode, Credit: -1})
				if err != nil {
					t.Fatalf("NewReceiver: %v", err)
				}
				if err := r.IssueCredit(10); err != nil {
					t.Fatalf("IssueCredit: %v", err)
				}
				settle := []func(m *goamqp.Message) error{
					func(m *goamqp.Message) error { return r.ReleaseMessage(ctx, m) },
					func(m *goamqp.Message) error { return r.ModifyMessage(ctx, m, nil) },
					func(m *goamqp.Message) error { return r.RejectMessage(ctx, m, nil) },
				}
				for i, f := range settle {
					m, err := r.Receive(ctx, nil)
					if err != nil {
						t.Fatalf("Receive %d: %v", i, err)
					}
					if err := f(m); err != nil {
						t.Fatalf("settle %d: %v", i, err)
					}
				}
				q.put(encode("two"))
				m, err := r.Receive(ctx, nil)
				if err != nil {
					t.Fatalf("Receive: %v", err)
				}
				if err := r.AcceptMessage(ctx, m); err != nil {
					t.Fatalf("Accept: %v", err)
				}
				if err := r.Close(ctx); err != nil { // everything before it has arrived then
					t.Fatalf("Close: %v", err)
				}
				settled := mode == goamqp.ReceiverSettleModeFirst
				want := []string{}
				for _, st := range []string{"amqp.Released", "*amqp.Modified", "*amqp.Rejected", "amqp.Accepted"} {
					want = append(want, fmt.Sprintf("%s %v", st, settled))
				}
				if diff := cmp.Diff(want, q.states()); diff != "" {
					t.Errorf("outcomes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// encode returns a message with s as its body.
func encode(s string) []byte {
	b, err := goamqp.NewMessage([]byte(s)).MarshalBinary()
	if err != nil {
		panic(err)
	}
	return b
}

func TestSenderThatSettlesSecond(t *testing.T) {
	both(t, func(t *testing.T, sc *scene, dial func() *goamqp.Conn) {
		s := session(t, dial())
		sender, err := s.NewSender(ctx, "sink", &goamqp.SenderOptions{
			SettlementMode:              goamqp.SenderSettleModeUnsettled.Ptr(),
			RequestedReceiverSettleMode: goamqp.ReceiverSettleModeSecond.Ptr()})
		if err != nil {
			t.Fatalf("NewSender: %v", err)
		}
		for range 3000 { // more than the credit: it comes back only when the client settles
			if err := sender.Send(ctx, goamqp.NewMessage([]byte("x")), nil); err != nil {
				t.Fatalf("Send: %v", err)
			}
		}
	})
}

func TestDrainIsAnsweredWithAndWithoutMessages(t *testing.T) {
	both(t, func(t *testing.T, sc *scene, dial func() *goamqp.Conn) {
		s := session(t, dial())
		q := sc.echo.queue("q")
		r, err := s.NewReceiver(ctx, "q", &goamqp.ReceiverOptions{Credit: -1})
		if err != nil {
			t.Fatalf("NewReceiver: %v", err)
		}
		for round := range 50 {
			for range round % 7 {
				q.put(encode("m"))
			}
			if err := r.IssueCredit(5); err != nil {
				t.Fatalf("IssueCredit: %v", err)
			}
			for range min(5, round%7) { // go-amqp takes its credit back when it drains, so these come first
				m, err := r.Receive(ctx, nil)
				if err != nil {
					t.Fatalf("Receive: %v", err)
				}
				if err := r.AcceptMessage(ctx, m); err != nil {
					t.Fatalf("Accept: %v", err)
				}
			}
			if err := r.DrainCredit(ctx, nil); err != nil {
				t.Fatalf("DrainCredit %d: %v", round, err)
			}
			if m := r.Prefetched(); m != nil {
				t.Fatalf("round %d: got %q, want no more", round, m.GetData())
			}
			q.mu.Lock()
			q.messages = nil
			q.mu.Unlock()
		}
	})
}

func TestFiveHundredSessionsOnOneConnection(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		conn := sc.dial(nil, nil)
		for round := range 2 {
			var sessions []*goamqp.Session
			for i := range 500 {
				s := session(t, conn)
				sessions = append(sessions, s)
				sender, err := s.NewSender(ctx, fmt.Sprintf("q%d", i), nil)
				if err != nil {
					t.Fatalf("NewSender %d: %v", i, err)
				}
				if err := sender.Send(ctx, goamqp.NewMessage(fmt.Append(nil, i)), nil); err != nil {
					t.Fatalf("Send %d: %v", i, err)
				}
			}
			for i, s := range sessions {
				r, err := s.NewReceiver(ctx, fmt.Sprintf("q%d", i), nil)
				if err != nil {
					t.Fatalf("NewReceiver %d: %v", i, err)
				}
				m, err := r.Receive(ctx, nil)
				if err != nil {
					t.Fatalf("Receive %d: %v", i, err)
				}
				if got, want := string(m.GetData()), fmt.Sprint(i); got != want {
					t.Errorf("session %d received %q, want %q", i, got, want)
				}
				if err := r.AcceptMessage(ctx, m); err != nil {
					t.Fatalf("Accept %d: %v", i, err)
				}
				if err := s.Close(ctx); err != nil {
					t.Fatalf("Close %d in round %d: %v", i, round, err)
				}
			}
		}
	})
}

func TestHandlerDetachesAndEnds(t *testing.T) {
	both(t, func(t *testing.T, sc *scene, dial func() *goamqp.Conn) {
		s := session(t, dial())
		sender, err := s.NewSender(ctx, "hold", nil)
		if err != nil {
			t.Fatalf("NewSender: %v", err)
		}
		failed := make(chan error, 1)
		go func() { failed <- sender.Send(ctx, goamqp.NewMessage([]byte("x")), nil) }()
		d := sc.awaitDeliveries(1)[0]
		d.Link().Detach(amqp.Errorf(amqp.ErrCondLinkDetachForced, "Idle."))
		var le *goamqp.LinkError
		if err := <-failed; !errors.As(err, &le) || le.RemoteErr == nil || le.RemoteErr.Condition != goamqp.ErrCondDetachForced {
			t.Errorf("Send = %v, want amqp:link:detach-forced", err)
		}
		d.Link().Settle(d, amqp.Accepted{}) // too late, and no trouble

		if sender, err = s.NewSender(ctx, "hold", nil); err != nil {
			t.Fatalf("NewSender after detach: %v", err)
		}
		go func() { failed <- sender.Send(ctx, goamqp.NewMessage([]byte("x")), nil) }()
		d = sc.awaitDeliveries(1)[0]
		d.Link().Session().End(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "Enough."))
		var se *goamqp.SessionError
		if err := <-failed; !errors.As(err, &se) || se.RemoteErr == nil || se.RemoteErr.Description != "Enough." {
			t.Errorf("Send = %v, want the session's error", err)
		}
	})
}

// awaitDeliveries waits until n deliveries to hold… have come.
func (sc *scene) awaitDeliveries(n int) []*Delivery {
	sc.t.Helper()
	var held []*Delivery
	for range 5000 {
		if held = append(held, sc.echo.takeDeliveries()...); len(held) >= n {
			return held
		}
		time.Sleep(time.Millisecond)
	}
	sc.t.Fatalf("%d deliveries came, want %d", len(held), n)
	return nil
}

func TestShutdownClosesWithConnectionForced(t *testing.T) {
	both(t, func(t *testing.T, sc *scene, dial func() *goamqp.Conn) {
		conn := dial()
		s := session(t, conn)
		r, err := s.NewReceiver(ctx, "q", nil)
		if err != nil {
			t.Fatalf("NewReceiver: %v", err)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := r.Receive(ctx, nil)
			failed <- err
		}()
		if err := sc.srv.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		// The link is detached before the connection is closed, and go-amqp reports either.
		var le *goamqp.LinkError
		var ce *goamqp.ConnError
		var e *goamqp.Error
		err = <-failed
		if errors.As(err, &le) {
			e = le.RemoteErr
		} else if errors.As(err, &ce) {
			e = ce.RemoteErr
		}
		if e == nil || e.Condition != goamqp.ErrCondConnectionForced {
			t.Errorf("Receive = %v, want amqp:connection:forced", err)
		}
		want := []string{"source q: amqp:connection:forced", "closed: amqp:connection:forced: The server is shutting down."}
		if diff := cmp.Diff(want, sc.echo.notes()); diff != "" {
			t.Errorf("handler calls (-want +got):\n%s", diff)
		}
		if err := sc.srv.ServeConn(sc.pipeEnd()); !errors.Is(err, ErrServerClosed) {
			t.Errorf("ServeConn after Shutdown = %v, want ErrServerClosed", err)
		}
	})
}
