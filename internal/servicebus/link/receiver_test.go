// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestNextDoesNotWait(t *testing.T) {
	play(t, func(s *scene) {
		r := s.receiver("orders")
		defer r.Close(s.Context())
		began := time.Now()
		m, err := r.Next(s.Context())
		if m != nil || err != nil {
			s.Errorf("Next on an empty queue = %v, %v, want nothing", m, err)
		}
		if took := time.Since(began); took > 5*time.Millisecond {
			s.Errorf("it took %v, want no wait for a message", took)
		}
		s.send(1, time.Hour)
		if m, err := r.Next(s.Context()); m == nil || err != nil {
			s.Errorf("Next on a queue with a message = %v, %v, want it", m, err)
		}
	})
}

// The credit that Next grants makes a lazy broker clear away what is expired, and is taken
// back: the link does not compete for what comes later.
func TestNextWakesALazyBrokerAndLeavesNoCredit(t *testing.T) {
	play(t, func(s *scene) {
		s.send(10, time.Second)
		time.Sleep(2 * time.Second)
		if c := s.orders.Counts(); c.Active != 10 {
			s.Fatalf("%d messages are active, want all 10: the broker is lazy", c.Active)
		}
		r := s.receiver("orders")
		defer r.Close(s.Context())
		if m, err := r.Next(s.Context()); m != nil || err != nil {
			s.Errorf("Next = %v, %v, want nothing: all is expired", m, err)
		}
		if c := s.orders.Counts(); c.Active != 0 || c.DeadLetter != 10 {
			s.Errorf("%d active and %d dead letters afterwards, want 0 and 10", c.Active, c.DeadLetter)
		}
		s.send(1, time.Hour)
		time.Sleep(time.Minute)
		if m := r.Prefetched(); m != nil {
			s.Error("a message came for credit that should have been taken back")
		}
	})
}

// A receiver that stops early gives back the messages it has, those in transit, and the credit.
func TestGiveBackLeavesNothingLocked(t *testing.T) {
	play(t, func(s *scene) {
		s.ns.Net.Delay(pipenet.Both, 10*time.Millisecond)
		s.send(10, time.Hour)
		r := s.receiver("orders")
		defer r.Close(s.Context())
		ctx, cancel := context.WithCancel(s.Context())
		if err := r.Grant(s.Context(), 20); err != nil {
			s.Fatal(err)
		}
		first, err := r.Receive(ctx, time.Second)
		if first == nil || err != nil {
			s.Fatalf("Receive = %v, %v, want a message", first, err)
		}
		cancel()
		if m, err := r.Next(ctx); m == nil && err == nil {
			s.Error("Next with a context that has ended = nothing and no error")
		} else if m != nil {
			_ = r.Release(s.Context(), m)
		}
		if n, err := r.GiveBack(ctx, first); n < 9 || err != nil {
			s.Errorf("GiveBack = %d, %v, want the rest of the 10 messages", n, err)
		}
		s.send(1, time.Hour)
		time.Sleep(5 * time.Minute) // locks would lapse
		for _, m := range brokertest.Seen(s.orders.Peek(nil, 0, 100)) {
			if m.DeliveryCount != 0 {
				s.Errorf("message %s has been delivered %d times, want 0", m.MessageID, m.DeliveryCount)
			}
		}
		if c := s.orders.Counts(); c.Active != 11 {
			s.Errorf("%d messages are active, want 11", c.Active)
		}
	})
}

func TestReleasedMessageIsAsItWas(t *testing.T) {
	play(t, func(s *scene) {
		s.send(1, time.Hour)
		r := s.receiver("orders")
		defer r.Close(s.Context())
		for range 20 {
			m, err := r.Next(s.Context())
			if m == nil || err != nil {
				s.Fatalf("Next = %v, %v", m, err)
			}
			if m.DeliveryCount != 0 {
				s.Fatalf("delivery count %d after releases only, want 0", m.DeliveryCount)
			}
			if err := r.Release(s.Context(), m); err != nil {
				s.Fatal(err)
			}
		}
	})
}

func TestSettlements(t *testing.T) {
	play(t, func(s *scene) {
		s.send(3, time.Hour)
		r := s.receiver("orders")
		defer r.Close(s.Context())
		if err := r.Grant(s.Context(), 3); err != nil {
			s.Fatal(err)
		}
		for i := range 3 {
			m, err := r.Receive(s.Context(), time.Second)
			if m == nil || err != nil {
				s.Fatalf("Receive = %v, %v", m, err)
			}
			switch i {
			case 0:
				err = r.Complete(s.Context(), m)
			case 1:
				err = r.DeadLetter(s.Context(), m, "DeadlineExceeded", "It was not received.")
			case 2:
				err = r.Release(s.Context(), m)
			}
			if err != nil {
				s.Errorf("settlement %d: %v", i, err)
			}
		}
		left := brokertest.Seen(s.orders.Peek(nil, 0, 10))
		if len(left) != 1 || left[0].MessageID != "2" || left[0].DeliveryCount != 0 {
			s.Errorf("left is %+v, want the released message as it was", left)
		}
		dead := brokertest.Seen(s.orders.DeadLetterQueue().Peek(nil, 0, 10))
		if len(dead) != 1 || dead[0].DeadLetterReason != "DeadlineExceeded" || dead[0].DeadLetterErrorDescription != "It was not received." {
			s.Errorf("dead letters are %+v, want one with its reason and description", dead)
		}
		if m, err := r.Receive(s.Context(), time.Second); m != nil || err != nil {
			s.Errorf("Receive without credit = %v, %v, want nothing and no error", m, err)
		}
	})
}

func TestSettlingAfterTheLockLapsedSaysSo(t *testing.T) {
	play(t, func(s *scene) {
		s.send(1, time.Hour)
		r := s.receiver("orders")
		defer r.Close(s.Context())
		m, err := r.Next(s.Context())
		if m == nil || err != nil {
			s.Fatalf("Next = %v, %v", m, err)
		}
		time.Sleep(2 * time.Minute)
		if err := r.DeadLetter(s.Context(), m, "r", "d"); link.Condition(err) != link.ConditionLockLost {
			s.Errorf("DeadLetter = %v, want condition %s", err, link.ConditionLockLost)
		}
	})
}

func TestQueueThatDoesNotExist(t *testing.T) {
	play(t, func(s *scene) {
		_, err := s.links.Receiver(s.Context(), "nowhere")
		if link.Condition(err) != link.ConditionNotFound {
			s.Errorf("Receiver = %v, want condition %s", err, link.ConditionNotFound)
		}
		s.receiver("orders").Close(s.Context()) // and the connection is still good
		if n := s.ns.Net.Conns(); n != 1 {
			s.Errorf("%d connections, want the one", n)
		}
	})
}

// A refusal by $cbs comes before any link. Nothing of it may be left behind.
func TestClaimIsMadeOnceAndRenewedInTime(t *testing.T) {
	play(t, func(s *scene) {
		for range 5 {
			s.receiver("orders").Close(s.Context())
		}
		if n := s.tokens.n.Load(); n != 1 {
			s.Errorf("%d tokens for five receivers, want 1", n)
		}
		r := s.receiver("orders")
		defer r.Close(s.Context())
		time.Sleep(50 * time.Minute)
		if err := r.Claim(s.Context()); err != nil {
			s.Fatal(err)
		}
		if n := s.tokens.n.Load(); n != 1 {
			s.Errorf("%d tokens after 50 minutes of an hour, want still 1", n)
		}
		time.Sleep(6 * time.Minute)
		if err := r.Claim(s.Context()); err != nil {
			s.Fatal(err)
		}
		if n := s.tokens.n.Load(); n != 2 {
			s.Errorf("%d tokens after 56 minutes, want a second one", n)
		}
	})
}

func TestConnectionThatIsCutIsMadeAnew(t *testing.T) {
	play(t, func(s *scene) {
		r := s.receiver("orders")
		s.ns.Net.Cut()
		if _, err := r.Receive(s.Context(), time.Second); err == nil {
			s.Error("Receive on a cut connection = nil, want an error")
		}
		r.Close(s.Context())
		s.send(1, time.Hour)
		again := s.receiver("orders")
		defer again.Close(s.Context())
		if m, err := again.Next(s.Context()); m == nil || err != nil {
			s.Errorf("Next on a new connection = %v, %v, want the message", m, err)
		}
	})
}

// The broker ends such a connection with amqp:unauthorized-access, which is about no queue.
func TestAStallBeforeTheFirstTokenIsOverWithTheNextLink(t *testing.T) {
	play(t, func(s *scene) {
		s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Delay: 25 * time.Second, Times: 1})
		if _, err := s.links.Peeker(s.Context(), "orders"); err == nil {
			s.Error("a link that met the stall was opened, want an error")
		}
		p, err := s.links.Peeker(s.Context(), "orders")
		if err != nil {
			s.Fatalf("the next link = %v, want nil", err)
		}
		p.Close(s.Context())
	}, func(c *broker.Config) { c.Keys = []broker.AuthorizationRule{brokertest.Key()} })
}

func TestClosedNamespaceOpensNothing(t *testing.T) {
	play(t, func(s *scene) {
		if err := s.links.Close(); err != nil {
			s.Fatal(err)
		}
		if _, err := s.links.Receiver(s.Context(), "orders"); !errors.Is(err, link.ErrClosed) {
			s.Errorf("Receiver = %v, want ErrClosed", err)
		}
	})
}

// The form is the one that the service checks: sr is the lower-case, url-encoded audience, and
// the signature covers it and the expiry.
func TestSharedAccessSignature(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands at 2000-01-01
		token, err := link.SAS("RootManageSharedAccessKey", "secret").Token(t.Context(), "amqps://Contoso.servicebus.windows.net/Orders")
		if err != nil {
			t.Fatal(err)
		}
		rest, ok := strings.CutPrefix(token.Value, "SharedAccessSignature ")
		if !ok || token.Type != "servicebus.windows.net:sastoken" {
			t.Fatalf("token %q of type %q", token.Value, token.Type)
		}
		q, err := url.ParseQuery(rest)
		if err != nil {
			t.Fatal(err)
		}
		want := url.Values{
			"sr": {"amqps://contoso.servicebus.windows.net/orders"}, "se": {"946688400"}, "skn": {"RootManageSharedAccessKey"},
			// openssl dgst -sha256 -hmac secret over
			// "amqps%3a%2f%2fcontoso.servicebus.windows.net%2forders\n946688400"
			"sig": {"wgADZTKLBCSdjfk606aLw3dTHh31JKtG3krKaLGWPys="},
		}
		for k := range want {
			if q.Get(k) != want.Get(k) {
				t.Errorf("%s is %q, want %q", k, q.Get(k), want.Get(k))
			}
		}
	})
}

func (s *scene) peeker(entity string) *link.Peeker {
	s.Helper()
	p, err := s.links.Peeker(s.Context(), entity)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { p.Close(context.Background()) })
	return p
}

func TestPeekShowsWhatTheMonitorJudgesBy(t *testing.T) {
	play(t, func(s *scene) {
		sender, err := s.ns.Client(s.T).NewSender("orders", nil)
		if err != nil {
			s.Fatal(err)
		}
		life, later := time.Minute, time.Now().Add(time.Hour).UTC()
		for _, m := range []*azservicebus.Message{
			{MessageID: to.Ptr("plain"), CorrelationID: to.Ptr("c"), TimeToLive: &life, Body: make([]byte, 1000),
				ApplicationProperties: map[string]any{"overdue-within": "5s", "overdue-deadline": later, "n": int32(5)}},
			{MessageID: to.Ptr("scheduled"), ScheduledEnqueueTime: &later},
		} {
			if err := sender.SendMessage(s.Context(), m, nil); err != nil {
				s.Fatal(err)
			}
		}
		page, err := s.peeker("orders").Peek(s.Context(), 0, 10)
		if err != nil || len(page) != 2 {
			s.Fatalf("Peek = %d messages, %v, want 2", len(page), err)
		}
		m := page[0]
		if m.SequenceNumber != 1 || m.MessageID != "plain" || m.CorrelationID != "c" || m.TimeToLive != life || m.State != link.Active ||
			!m.EnqueuedTime.Equal(time.Now()) || m.DeliveryCount != 0 || m.DeadLetterReason != "" {
			s.Errorf("the plain message is shown as %+v", m)
		}
		if len(m.Properties) != 2 || m.Properties["overdue-within"] != "5s" || m.Properties["overdue-deadline"] != later {
			s.Errorf("its properties are %v, want the string and the timestamp", m.Properties)
		}
		if m := page[1]; m.State != link.Scheduled || !m.ScheduledEnqueueTime.Equal(later) {
			s.Errorf("the scheduled message is shown as %+v", m)
		}
		if page, err := s.peeker("orders/$DeadLetterQueue").Peek(s.Context(), 0, 10); err != nil || len(page) != 0 {
			s.Errorf("Peek at no dead letters = %d, %v, want none", len(page), err)
		}
	})
}

func TestPeekAtDeadLetters(t *testing.T) {
	play(t, func(s *scene) {
		s.send(3, time.Second)
		time.Sleep(2 * time.Second)
		r := s.receiver("orders")
		defer r.Close(s.Context())
		if _, err := r.Next(s.Context()); err != nil {
			s.Fatal(err)
		}
		page, err := s.peeker("orders/$DeadLetterQueue").Peek(s.Context(), 2, 10)
		if err != nil || len(page) != 2 || page[0].SequenceNumber != 2 || page[0].DeadLetterReason != "TTLExpiredException" {
			s.Errorf("Peek = %+v, %v, want the dead letters 2 and 3 with their reason", page, err)
		}
	})
}

func TestPeekAtAQueueThatDoesNotExist(t *testing.T) {
	play(t, func(s *scene) {
		p, err := s.links.Peeker(s.Context(), "nowhere")
		if err == nil {
			_, err = p.Peek(s.Context(), 0, 1)
		}
		if link.Condition(err) != link.ConditionNotFound {
			s.Errorf("Peeker = %v, want condition %s", err, link.ConditionNotFound)
		}
	})
}
