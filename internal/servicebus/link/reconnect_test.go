// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
)

// batch is n messages that are due in an hour.
func batch(n int, body string) *link.Batch {
	b := &link.Batch{}
	for i := range n {
		b.Add(&link.ScheduledMessage{MessageID: fmt.Sprint(i), Due: time.Now().Add(time.Hour), Body: []byte(body)})
	}
	return b
}

func (s *scene) reconnecting(entity string) *link.ReconnectingSender {
	sender := s.links.ReconnectingSender(entity)
	s.Cleanup(func() { _ = sender.Close(context.Background()) }) // a test may have broken the connection
	return sender
}

// bounded is a context for one batch.
func (s *scene) bounded() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	s.Cleanup(cancel)
	return ctx
}

// seen is what the SDK shows of a message.
func seen(m *azservicebus.ReceivedMessage) string {
	return fmt.Sprint(m.MessageID, *m.Subject, *m.ContentType, string(m.Body), m.State, m.EnqueuedTime, m.ScheduledEnqueueTime,
		m.TimeToLive, m.ApplicationProperties, m.CorrelationID, m.To, m.ReplyTo, m.SessionID, m.PartitionKey)
}

func TestABatchSchedulesAsTheSDKDoes(t *testing.T) {
	play(t, func(s *scene) {
		due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		b := &link.Batch{}
		b.Add(&link.ScheduledMessage{MessageID: "m", Subject: "each", ContentType: "application/json", Due: due, Body: []byte(`{"a":1}`)})
		if err := s.reconnecting("orders").Send(s.Context(), b); err != nil {
			t.Fatal(err)
		}
		client := s.ns.Client(s.T)
		sender, err := client.NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.SendMessage(s.Context(), &azservicebus.Message{
			MessageID: to.Ptr("m"), Subject: to.Ptr("each"), ContentType: to.Ptr("application/json"), ScheduledEnqueueTime: &due, Body: []byte(`{"a":1}`),
		}, nil); err != nil {
			t.Fatal(err)
		}
		receiver, err := client.NewReceiverForQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := receiver.PeekMessages(s.Context(), 10, nil)
		if err != nil || len(got) != 2 {
			t.Fatalf("peek = %d messages, %v, want both", len(got), err)
		}
		if diff := cmp.Diff(seen(got[1]), seen(got[0])); diff != "" {
			t.Errorf("the SDK's message and the batch's: %s", diff)
		}
	})
}

func TestASenderLastsForHoursWithAndWithoutUse(t *testing.T) {
	play(t, func(s *scene) {
		sender := s.reconnecting("orders")
		for i := range 600 {
			if err := sender.Send(s.Context(), batch(10, "x")); err != nil {
				t.Fatalf("batch %d: %v", i, err)
			}
			time.Sleep(time.Second)
		}
		if n := s.orders.Counts().Scheduled; n != 6000 {
			t.Errorf("%d messages, want 6000", n)
		}
		time.Sleep(2 * time.Hour) // with nothing but keep-alives, and tokens that expire
		if err := sender.Send(s.Context(), batch(1, "x")); err != nil {
			t.Errorf("after two hours: %v", err)
		}
		if n := s.tokens.n.Load(); n < 2 {
			t.Errorf("%d tokens were asked for, want another after an hour", n)
		}
	})
}

// A token of an hour is replaced in its last five minutes, on the same connection.
func TestATokenIsRenewedBeforeItEnds(t *testing.T) {
	play(t, func(s *scene) {
		began, sender := time.Now(), s.reconnecting("orders")
		for _, at := range []struct {
			after  time.Duration
			tokens int64
		}{{0, 1}, {54 * time.Minute, 1}, {56 * time.Minute, 2}, {58 * time.Minute, 2}} {
			time.Sleep(at.after - time.Since(began))
			if err := sender.Send(s.bounded(), batch(1, "x")); err != nil {
				t.Fatal(err)
			}
			if n := s.tokens.n.Load(); n != at.tokens || s.ns.Net.Conns() != 1 {
				t.Errorf("after %v: %d tokens and %d connections, want %d and one", at.after, n, s.ns.Net.Conns(), at.tokens)
			}
		}
	})
}

func TestABatchMayBeLargerThanAFrame(t *testing.T) {
	play(t, func(s *scene) {
		sender := s.reconnecting("orders")
		body := strings.Repeat("0123456789", 7_000)
		if err := sender.Send(s.Context(), batch(3, body)); err != nil {
			t.Fatal(err)
		}
		for _, v := range brokertest.Seen(s.orders.Peek(nil, 0, 10)) {
			if !bytes.Contains(v.Body, []byte(body)) {
				t.Errorf("a body of %d bytes, want one of %d", len(v.Body), len(body))
			}
		}
		began := time.Now()
		if err := sender.Send(s.Context(), batch(1, strings.Repeat("x", 2<<20))); !errors.Is(err, link.ErrTooLarge) {
			t.Errorf("Send of more than the queue takes = %v, want ErrTooLarge", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("that took %v, want no other attempt", took)
		}
	})
}

func TestSeveralBatchesAreInFlight(t *testing.T) {
	play(t, func(s *scene) {
		sender := s.reconnecting("orders")
		if err := sender.Send(s.Context(), batch(1, "x")); err != nil {
			t.Fatal(err)
		}
		s.ns.Net.Delay(pipenet.Both, 50*time.Millisecond)
		defer s.ns.Net.Delay(pipenet.Both, 0)
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := sender.Send(s.Context(), batch(3, "x")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("20 batches took %v with a round trip of 100ms, want them together", took)
		}
	})
}

// Whatever passes, Send says that a batch is accepted when it is, and not before.
func TestABatchIsSentAgainAfterWhatPasses(t *testing.T) {
	for name, hurt := range map[string]func(*scene){
		"throttled": func(s *scene) {
			s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Error: broker.ServerBusy(), Times: 2})
		},
		"detached": func(s *scene) {
			s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Detach: true, Times: 2})
		},
		"detached, as for an idle link whose token has expired": func(s *scene) {
			s.ns.Broker.Default().Inject(broker.Fault{
				Operation: broker.OnSend, Detach: true, Times: 1, Error: amqp.Errorf("amqp:unauthorized-access", "the token has expired"),
			})
		},
		"unanswered": func(s *scene) {
			s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Silent: true, Times: 1})
		},
		"slow": func(s *scene) {
			s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Delay: time.Minute, Error: broker.ServerBusy(), Times: 1})
		},
		"cut": func(s *scene) { s.ns.Net.Cut() },
		"stalled": func(s *scene) {
			s.ns.Net.Stall(pipenet.Both)
			time.AfterFunc(10*time.Second, func() { s.ns.Net.Resume(pipenet.Both) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.ns.Net.Delay(pipenet.Both, time.Millisecond)
				sender := s.reconnecting("orders")
				if err := sender.Send(s.bounded(), batch(2, "x")); err != nil {
					t.Fatal(err)
				}
				hurt(s)
				synctest.Wait()
				if err := sender.Send(s.bounded(), batch(2, "x")); err != nil {
					t.Errorf("Send = %v, want it sent again", err)
				}
				if n := s.orders.Counts().Scheduled; n < 4 {
					t.Errorf("%d messages are there, want all four", n)
				}
			})
		})
	}
}

// An error that another attempt would meet again is returned at once, with its condition.
func TestASenderSaysAtOnceWhatWillNotPass(t *testing.T) {
	play(t, func(s *scene) {
		began := time.Now()
		err := s.reconnecting("nowhere").Send(s.bounded(), batch(1, "x"))
		if link.Condition(err) != link.ConditionNotFound || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("Send to a queue that is not there = %v, want %s and its name", err, link.ConditionNotFound)
		}
		sender := s.reconnecting("orders")
		if err := sender.Send(s.bounded(), batch(1, "x")); err != nil {
			t.Fatal(err)
		}
		if err := s.ns.Broker.Default().DeleteQueue("orders"); err != nil {
			t.Fatal(err)
		}
		if err := sender.Send(s.bounded(), batch(1, "x")); link.Condition(err) != link.ConditionNotFound {
			t.Errorf("Send to a queue that was deleted = %v, want %s", err, link.ConditionNotFound)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("both took %v, want no wait", took)
		}
	})
}

func TestASenderGivesUpAfterSomeAttempts(t *testing.T) {
	play(t, func(s *scene) {
		s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Error: broker.ServerBusy()})
		began := time.Now()
		if err := s.reconnecting("orders").Send(s.bounded(), batch(1, "x")); err == nil {
			t.Error("Send = nil, want that the broker is busy")
		}
		if took := time.Since(began); took < time.Second || took > 6*time.Second {
			t.Errorf("it gave up after %v, want some seconds", took)
		}
	})
}

// The batch in flight fails, and the next as well.
func TestAClosedSenderSendsNothing(t *testing.T) {
	play(t, func(s *scene) {
		sender := s.reconnecting("orders")
		if err := sender.Send(s.bounded(), batch(1, "x")); err != nil {
			t.Fatal(err)
		}
		s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Silent: true, Times: 1})
		result := make(chan error)
		go func() { result <- sender.Send(s.bounded(), batch(1, "x")) }()
		synctest.Wait()
		if err := sender.Close(s.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		if err := <-result; !errors.Is(err, link.ErrClosed) {
			t.Errorf("Send in flight = %v, want ErrClosed", err)
		}
		if err := sender.Send(s.bounded(), batch(1, "x")); !errors.Is(err, link.ErrClosed) {
			t.Errorf("Send after Close = %v, want ErrClosed", err)
		}
	})
}

func TestASenderThatFindsNoWayThereSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := link.New(link.Config{Host: "overdue.test", Plain: true, Tokens: link.SAS("k", "c2VjcmV0"), Dial: func(context.Context) (net.Conn, error) {
			return nil, errors.New("no way there")
		}})
		sender := links.ReconnectingSender("orders")
		if err := sender.Send(t.Context(), batch(1, "x")); !errors.Is(err, link.ErrNoConnection) || !strings.Contains(err.Error(), "no way there") {
			t.Errorf("Send = %v, want the reason", err)
		}
		if err := links.Close(); err != nil {
			t.Error(err)
		}
		if err := sender.Send(t.Context(), batch(1, "x")); !errors.Is(err, link.ErrClosed) {
			t.Errorf("Send after its namespace was closed = %v, want ErrClosed", err)
		}
	})
}

// The token source makes its own attempts, and what it fails at ends no connection.
func TestASenderKeepsItsConnectionWhileNoTokenIsToBeHad(t *testing.T) {
	play(t, func(s *scene) {
		tokens := &failingTokens{}
		dials := 0
		links := link.New(link.Config{Host: "overdue.test", Plain: true, Tokens: tokens, Dial: func(ctx context.Context) (net.Conn, error) {
			dials++
			return s.ns.Dial(ctx)
		}})
		defer func() { _ = links.Close() }() // it does not matter here
		sender := links.ReconnectingSender("orders")
		if err := sender.Send(s.bounded(), batch(1, "x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(56 * time.Minute) // the token lasts for four minutes more
		tokens.fail.Store(true)
		if err := sender.Send(s.bounded(), batch(1, "x")); !errors.Is(err, errTokens) {
			t.Errorf("Send = %v, want what the token source says", err)
		}
		tokens.fail.Store(false)
		if err := sender.Send(s.bounded(), batch(1, "x")); err != nil || dials != 1 {
			t.Errorf("Send with a token again = %v on connection %d, want nil on the first", err, dials)
		}
	})
}

var errTokens = errors.New("no token to be had")

// failingTokens fails while fail is set.
type failingTokens struct {
	countingTokens
	fail atomic.Bool
}

func (f *failingTokens) Token(ctx context.Context, audience string) (link.Token, error) {
	if f.fail.Load() {
		return link.Token{}, errTokens
	}
	return f.countingTokens.Token(ctx, audience)
}
