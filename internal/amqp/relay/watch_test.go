// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

// raw opens a connection of go-amqp through the relay and a session on it.
func (s *scene) raw(o *goamqp.ConnOptions) *goamqp.Session {
	s.Helper()
	nc, err := s.dial(s.Context())
	s.must(err)
	if o == nil {
		o = &goamqp.ConnOptions{}
	}
	o.SASLType, o.HostName = goamqp.SASLTypeAnonymous(), "overdue.test"
	c, err := goamqp.NewConn(s.Context(), nc, o)
	s.must(err)
	s.Cleanup(func() { _ = c.Close() }) // a test may have cut it
	session, err := c.NewSession(s.Context(), nil)
	s.must(err)
	return session
}

func (s *scene) sender(session *goamqp.Session, o *goamqp.SenderOptions) *goamqp.Sender {
	s.Helper()
	sender, err := session.NewSender(s.Context(), "orders", o)
	s.must(err)
	return sender
}

// waiting returns what waits in orders, in order.
func (s *scene) waiting() []string {
	s.Helper()
	q, ok := s.ns.Broker.Queue("orders")
	if !ok {
		s.Fatal("there is no queue orders")
	}
	var all []string
	for _, v := range brokertest.Seen(q.Peek(nil, 0, 10_000)) {
		all = append(all, body(s.T, v))
	}
	return all
}

func body(t *testing.T, v queue.View) string {
	t.Helper()
	m, err := amqp.ParseMessage(v.Body)
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range amqp.DataSections(m.Body) {
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return ""
}

func text(s string) *goamqp.Message { return goamqp.NewMessage([]byte(s)) }

// send sends in the background; the error comes on the channel.
func (s *scene) send(sender *goamqp.Sender, m *goamqp.Message) <-chan error {
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
	go func() {
		defer cancel()
		done <- sender.Send(ctx, m, nil)
	}()
	synctest.Wait()
	return done
}

func pending(t *testing.T, what string, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Errorf("%s ended with %v, want it to wait", what, err)
	default:
	}
}

func wantRejected(t *testing.T, what string, err error, condition string) {
	t.Helper()
	var e *goamqp.Error
	if !errors.As(err, &e) || string(e.Condition) != condition {
		t.Errorf("%s = %v, want rejected with %s", what, err, condition)
	}
}

func TestTheSenderWaitsForTheAnswerOfTheWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handlers []*fakeHandler
		s := setup(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			handlers = append(handlers, newFakeHandler(d, false))
			return handlers[len(handlers)-1], nil
		}}))
		sender := s.sender(s.raw(nil), nil)
		a, b, c := s.send(sender, text("a")), s.send(sender, text("b")), s.send(sender, text("c"))
		if got := fmt.Sprint(s.waiting()); got != "[a b c]" {
			t.Errorf("upstream has %s, want [a b c]: deliveries go on at once", got)
		}
		for i, h := range handlers {
			if o := <-h.outcome; o != (amqp.Accepted{}) {
				t.Errorf("outcome %d = %v, want accepted", i, o)
			}
		}
		pending(t, "the first send", a)
		(<-handlers[1].answer)(nil)
		if err := <-b; err != nil {
			t.Errorf("second send = %v, want accepted", err)
		}
		pending(t, "the first send", a)
		(<-handlers[2].answer)(&amqp.Error{Condition: "com.microsoft:server-busy"})
		wantRejected(t, "third send", <-c, "com.microsoft:server-busy")
		(<-handlers[0].answer)(nil)
		if err := <-a; err != nil {
			t.Errorf("first send = %v, want accepted", err)
		}
	})
}

func TestWhatIsHeldBackGoesOnInOrderWithThePayloadOfTheWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ds []*Delivery
		var handlers []*fakeHandler
		s := setup(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			ds, handlers = append(ds, d), append(handlers, newFakeHandler(d, len(ds) == 0))
			return handlers[len(handlers)-1], nil
		}}))
		sender := s.sender(s.raw(nil), nil)
		a, b := s.send(sender, text("a")), s.send(sender, text("b"))
		if got := s.waiting(); len(got) != 0 {
			t.Errorf("upstream has %q, want nothing before the first is ready", got)
		}
		ds[0].Payload = amqp.AppendData(nil, []byte("changed"))
		handlers[0].ready(nil)
		synctest.Wait()
		if got := fmt.Sprint(s.waiting()); got != "[changed b]" {
			t.Errorf("upstream has %s, want [changed b]", got)
		}
		(<-handlers[1].answer)(nil)
		(<-handlers[0].answer)(nil)
		if err := errors.Join(<-a, <-b); err != nil {
			t.Errorf("sends = %v, want accepted", err)
		}
	})
}

// Deliveries that do not go on take ids and credit of the sender that upstream
// never hears of.
func TestRefusedDeliveriesLeaveNoTraceUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var last *fakeHandler
		s := setup(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			switch n++; n % 3 {
			case 0:
				return nil, &amqp.Error{Condition: "com.microsoft:server-busy"}
			case 1:
				last = newFakeHandler(d, true)
				return last, nil
			}
			return nil, nil
		}}))
		sender := s.sender(s.raw(nil), nil)
		want := []string{}
		for i := range 9000 { // more than the credit that upstream grants
			m := fmt.Sprint(i)
			done := make(chan error, 1)
			go func() { done <- sender.Send(t.Context(), text(m), nil) }()
			switch i % 3 {
			case 0:
				synctest.Wait()
				last.ready(&amqp.Error{Condition: "test:refused"})
				wantRejected(t, "send that was refused late", <-done, "test:refused")
			case 1:
				if err := <-done; err != nil {
					t.Fatalf("send %d = %v, want accepted", i, err)
				}
				want = append(want, m)
			case 2:
				wantRejected(t, "send that was refused", <-done, "com.microsoft:server-busy")
			}
			if t.Failed() {
				return
			}
		}
		if got := s.waiting(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("upstream has %d messages, want the %d that were accepted, in order", len(got), len(want))
		}
	})
}

func TestSettledDeliveriesAreWatchedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handlers []*fakeHandler
		s := setup(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			if !d.Settled {
				t.Error("the delivery is not settled, want settled")
			}
			handlers = append(handlers, newFakeHandler(d, true))
			return handlers[len(handlers)-1], nil
		}}))
		sender := s.sender(s.raw(nil), &goamqp.SenderOptions{SettlementMode: goamqp.SenderSettleModeSettled.Ptr()})
		for _, m := range []string{"a", "b"} {
			if err := <-s.send(sender, text(m)); err != nil {
				t.Fatal(err)
			}
		}
		handlers[1].ready(nil)
		handlers[0].ready(&amqp.Error{Condition: "test:refused"})
		synctest.Wait()
		if got := fmt.Sprint(s.waiting()); got != "[b]" {
			t.Errorf("upstream has %s, want [b]", got)
		}
		if o := <-handlers[1].outcome; o != nil {
			t.Errorf("outcome = %v, want none", o)
		}
		select {
		case o := <-handlers[0].outcome:
			t.Errorf("outcome of what was refused = %v, want no call", o)
		default:
		}
	})
}

func TestDetachedIsCalledOnce(t *testing.T) {
	for name, end := range map[string]func(*scene, *goamqp.Sender){
		"detached":       func(s *scene, l *goamqp.Sender) { s.must(l.Close(s.Context())) },
		"client cut":     func(s *scene, _ *goamqp.Sender) { s.front.Cut() },
		"upstream cut":   func(s *scene, _ *goamqp.Sender) { s.ns.Net.Cut() },
		"queue deleted":  func(s *scene, _ *goamqp.Sender) { s.must(s.ns.Broker.Default().DeleteQueue("orders")) },
		"relay shutdown": func(s *scene, _ *goamqp.Sender) { s.must(s.relay.Shutdown(s.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &fakeWatcher{deliver: func(*Delivery) (DeliveryHandler, *amqp.Error) { return nil, nil }}
				s := setup(t, watching(w))
				sender := s.sender(s.raw(nil), nil)
				if err := <-s.send(sender, text("a")); err != nil {
					t.Fatal(err)
				}
				end(s, sender)
				time.Sleep(time.Minute)
				synctest.Wait()
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.detached != 1 {
					t.Errorf("Detached was called %d times, want once", w.detached)
				}
			})
		})
	}
}

func TestAnAnswerAfterTheEndHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handlers []*fakeHandler
		s := setup(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			handlers = append(handlers, newFakeHandler(d, len(handlers) == 1))
			return handlers[len(handlers)-1], nil
		}}))
		sender := s.sender(s.raw(nil), nil)
		a, b := s.send(sender, text("a")), s.send(sender, text("b"))
		answer := <-handlers[0].answer
		s.front.Cut()
		if err := <-a; err == nil {
			t.Error("first send = nil, want the error of the cut")
		}
		if err := <-b; err == nil {
			t.Error("second send = nil, want the error of the cut")
		}
		synctest.Wait() // the relay has seen the cut too
		answer(nil)
		answer(nil)
		handlers[1].ready(nil)
		handlers[1].ready(nil)
		synctest.Wait()
		if got := fmt.Sprint(s.waiting()); got != "[a]" {
			t.Errorf("upstream has %s, want [a]", got)
		}
	})
}

func TestAMessageLargerThanTheLinkAllowsIsRejectedByTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWatcher{deliver: func(*Delivery) (DeliveryHandler, *amqp.Error) { return nil, nil }}
		s := setup(t, func(c *Config) {
			watching(w)(c)
			c.MaxMessageSize = 100_000
		})
		sender := s.sender(s.raw(nil), nil)
		if got := sender.MaxMessageSize(); got != 100_000 {
			t.Errorf("max-message-size = %d, want 100000", got)
		}
		if err := <-s.send(sender, goamqp.NewMessage(make([]byte, 99_000))); err != nil {
			t.Errorf("send of what fits = %v, want accepted", err)
		}
	})
}

// Upstream answers many deliveries in one disposition; those that are held come
// out of it one by one, in the order of the answers.
func TestADispositionForManyIsSplitAtWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handlers []*fakeHandler
		s := setup(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			if len(d.Tag) > 0 && d.Tag[0]%3 != 1 {
				return nil, nil // 0, 2, 3, 5, 6, …
			}
			handlers = append(handlers, newFakeHandler(d, false))
			return handlers[len(handlers)-1], nil
		}}))
		p := s.peer()
		p.attachSender("link", 0, "orders")
		var all []byte
		for id := range uint32(9) {
			all = amqp.AppendFrame(all, 0, &amqp.Transfer{DeliveryID: id, HasDeliveryID: true, DeliveryTag: []byte{byte(id)}},
				amqp.AppendData(nil, []byte("x")))
		}
		_, err := p.nc.Write(all)
		s.must(err)
		// How many of the others one disposition is about depends on how many upstream took at a time.
		var settled []int
		for len(settled) < 6 {
			got := p.expect("disposition")
			for _, pair := range strings.Fields(got) {
				var id int
				if n, _ := fmt.Sscanf(pair, "first=%d", &id); n == 1 {
					settled = append(settled, id)
				} else if n, _ := fmt.Sscanf(pair, "last=%d", &id); n == 1 {
					for next := settled[len(settled)-1] + 1; next <= id; next++ {
						settled = append(settled, next)
					}
				}
			}
		}
		if want := []int{0, 2, 3, 5, 6, 8}; !slices.Equal(settled, want) {
			t.Errorf("the client got dispositions about %v, want %v: the others are held", settled, want)
		}
		for _, i := range []int{2, 0, 1} {
			(<-handlers[i].answer)(nil)
			if got, want := p.expect("disposition"), fmt.Sprintf("first=%d ", 3*i+1); !strings.Contains(got, want) {
				t.Errorf("after answer %d the client got %s, want it to be about %s", i, got, want)
			}
		}
	})
}
