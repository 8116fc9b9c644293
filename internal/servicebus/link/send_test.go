// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
)

// mail is a message with that body, as it is encoded.
func mail(body string) []byte {
	m := link.ScheduledMessage{MessageID: "m", TimeToLive: time.Hour, Body: []byte(body)}
	return m.Encoded()
}

func (s *scene) wantActive(want int) {
	s.Helper()
	if got := s.orders.Counts().Active; got != want {
		s.Fatalf("orders holds %d messages, want %d", got, want)
	}
}

func TestASendOpensItsLinkAgain(t *testing.T) {
	play(t, func(s *scene) {
		for i, end := range []func(){
			func() {},
			func() { s.ns.Net.Cut() },
			func() { time.Sleep(11 * time.Minute) }, // the broker detaches what is idle
		} {
			end()
			if err := s.links.Send(s.bounded(), "orders", mail("x")); err != nil {
				t.Fatal(err)
			}
			s.wantActive(i + 1)
		}
	}, func(c *broker.Config) { c.LinkIdleTimeout = 10 * time.Minute })
}

func TestWhatABatchHoldsIsSentTogether(t *testing.T) {
	play(t, func(s *scene) {
		envelope := amqp.Message{Data: [][]byte{mail("a"), mail("b")}}
		encoded, err := envelope.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.links.SendBatch(s.bounded(), "orders", encoded); err != nil {
			t.Fatal(err)
		}
		s.wantActive(2)
	})
}

func TestASendIsRefusedInTheWordsOfTheBroker(t *testing.T) {
	play(t, func(s *scene) {
		if err := s.links.Send(s.bounded(), "missing", mail("x")); link.Condition(err) != link.ConditionNotFound {
			t.Errorf("a send to a queue that is missing = %v, want %s", err, link.ConditionNotFound)
		}
		if err := s.links.Send(s.bounded(), "orders", mail(strings.Repeat("x", 1<<20))); !errors.Is(err, link.ErrTooLarge) {
			t.Errorf("a send of a mebibyte = %v, want ErrTooLarge", err)
		}
		if n := s.links.Entities(); n != 1 {
			t.Errorf("%d senders are kept, want that to orders alone", n)
		}
		if err := s.links.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.links.Send(s.bounded(), "orders", mail("x")); !errors.Is(err, link.ErrClosed) {
			t.Errorf("a send after Close = %v, want ErrClosed", err)
		}
	})
}

func TestNamesOfAnEntityShareALink(t *testing.T) {
	play(t, func(s *scene) {
		for _, name := range []string{"orders", "Orders", "ORDERS"} {
			if err := s.links.Send(s.bounded(), name, mail("x")); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.links.Entities(); n != 1 {
			t.Errorf("%d senders are kept for one entity, want 1", n)
		}
	})
}

func TestLinksToSendOverAreBounded(t *testing.T) {
	const extra = 20
	queues := func(c *broker.Config) {
		for i := range link.MaxSenders + extra {
			c.Queues = append(c.Queues, broker.QueueConfig{Name: fmt.Sprint("q", i)})
		}
	}
	play(t, func(s *scene) {
		for i := range link.MaxSenders + extra {
			if err := s.links.Send(s.bounded(), fmt.Sprint("q", i), mail("x")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		synctest.Wait() // links are closed
		if n := s.links.Entities(); n != link.MaxSenders {
			t.Errorf("%d senders are kept, want %d", n, link.MaxSenders)
		}
		if err := s.links.Send(s.bounded(), "q0", mail("again")); err != nil {
			t.Errorf("the next send to an entity whose link was closed = %v", err)
		}
	}, queues)
}

func TestAScheduledMessageHasANumber(t *testing.T) {
	play(t, func(s *scene) {
		p, err := s.links.Peeker(s.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(s.Context())
		due := time.Now().Add(time.Hour)
		number, err := p.Schedule(s.Context(), &link.ScheduledMessage{MessageID: "m", Due: due, TimeToLive: time.Minute})
		if err != nil || number == 0 {
			t.Fatalf("Schedule = %d, %v", number, err)
		}
		page, err := p.Peek(s.Context(), number, 1)
		if err != nil || len(page) != 1 || page[0].SequenceNumber != number || page[0].MessageID != "m" {
			t.Fatalf("Peek = %v, %v, want the message", page, err)
		}
		if err := p.CancelScheduled(s.Context(), []int64{number}); err != nil {
			t.Fatal(err)
		}
		if n := s.orders.Counts().Scheduled; n != 0 {
			t.Errorf("%d messages are scheduled, want none", n)
		}
	})
}
