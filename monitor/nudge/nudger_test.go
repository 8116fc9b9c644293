// SPDX-License-Identifier: Apache-2.0

package nudge

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	orders = "orders"
	life   = 10 * time.Second
	idle   = 5 * time.Minute // after which the broker deletes the queue
)

// scene is a queue whose dead letters may be taken away, and what nudges it.
type scene struct {
	*testing.T
	*Nudger
	ns         *brokertest.Namespace
	work, dead *search.View
	failed     []error
}

func play(t *testing.T, act func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate, c.Expiry = false, queue.Lazy
			c.Queues = []broker.QueueConfig{{Name: orders, DeadLetteringOnMessageExpiration: true, AutoDeleteOnIdle: idle}}
		})
		s := &scene{T: t, ns: ns}
		clock := &judge.Clock{Measured: func() scheduler.Instant { return scheduler.Instant{Time: time.Now(), Measured: true} }}
		clock.Observe(time.Now())
		links, o, kept := ns.Links(t), operations.New(prometheus.NewRegistry()), &search.Kept{}
		s.work = &search.View{Links: links, Path: orders, Operations: o}
		s.dead = &search.View{Links: links, Path: orders + "/$DeadLetterQueue", Operations: o, Kept: kept}
		s.Nudger = New(Config{
			Links: links, Path: orders, Clock: clock, Operations: o,
			Letters: func() search.LetterState { return search.LettersTaken }, First: func() bool { return true }, Many: func() bool { return false }, Proven: func(time.Time) bool { return false }, May: func(context.Context, time.Time) bool { return true },
			Sessions: func() { t.Error("the queue requires sessions, want that it does not") },
			Failed:   func(err error) { s.failed = append(s.failed, err) },
			Nudged:   func() {}, Read: kept.Add, Go: func(f func()) { go f() },
		})
		act(s)
	})
}

// send sends messages with these times to live, and returns when.
func (s *scene) send(lives ...time.Duration) time.Time {
	s.Helper()
	c := s.ns.Client(s.T)
	sender, err := c.NewSender(orders, nil)
	if err != nil {
		s.Fatal(err)
	}
	for _, life := range lives {
		if err := sender.SendMessage(s.Context(), &azservicebus.Message{TimeToLive: &life}, nil); err != nil {
			s.Fatal(err)
		}
	}
	if err := errors.Join(sender.Close(s.Context()), c.Close(s.Context())); err != nil {
		s.Fatal(err)
	}
	return time.Now()
}

// take receives a message and completes it.
func (s *scene) take() {
	s.Helper()
	c := s.ns.Client(s.T)
	r, err := c.NewReceiverForQueue(orders, nil)
	if err != nil {
		s.Fatal(err)
	}
	ms, err := r.ReceiveMessages(s.Context(), 1, nil)
	if err != nil {
		s.Fatal(err)
	}
	if err := errors.Join(r.CompleteMessage(s.Context(), ms[0], nil), c.Close(s.Context())); err != nil {
		s.Fatal(err)
	}
}

// proven returns the numbers of those messages that have expired for certain.
func (s *scene) proven(read, due time.Time, numbers ...int64) (all []int64) {
	s.Helper()
	shown, err := s.Prove(s.Context(), s.work, s.dead, due)
	if err != nil {
		s.Fatal(err)
	}
	for _, n := range numbers {
		if shown.Proves(&link.Message{SequenceNumber: n}, read, due) {
			all = append(all, n)
		}
	}
	return all
}

// A nudge moves what is overdue and leaves what is live as it was. It says when it has moved it.
func TestANudgeMovesWhatIsOverdue(t *testing.T) {
	play(t, func(s *scene) {
		sent := s.send(life, time.Hour, life)
		s.Want(s.Context(), sent.Add(life+search.StampPrecision))
		time.Sleep(life + time.Second)
		synctest.Wait()
		q, _ := s.ns.Broker.Queue(orders)
		if c := q.Counts(); c.Active != 1 || c.DeadLetter != 2 {
			t.Errorf("%+v, want one active and two dead letters", c)
		}
		if left := q.Peek(nil, 0, 10); len(left) != 1 || left[0].DeliveryCount != 0 {
			t.Errorf("%+v are left, want one that was not delivered", left)
		}
		if at, known := s.MovedAt(sent.Add(life)); !known || at.Before(sent.Add(life)) || at.After(sent.Add(life+time.Second)) {
			t.Errorf("moved at %v, known %v, want right after the deadline", at, known)
		}
		if !s.Made().After(sent.Add(life)) || len(s.failed) != 0 {
			t.Errorf("the last nudge was made at %v, failures %v", s.Made(), s.failed)
		}
		// Who takes the dead letters away comes later than the read behind the nudge.
		letters, err := s.dead.Peek(s.Context(), 0, 10)
		if err != nil || len(letters) != 2 {
			t.Errorf("%d dead letters were kept, %v, want two", len(letters), err)
		}
	})
}

// The first nudge that began at an instant or later is found, however many there were.
func TestPastNudgesAreFound(t *testing.T) {
	begin := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(i int) time.Time { return begin.Add(time.Duration(10*i) * time.Millisecond) }
	for _, n := range []int{0, 1, 2, maxPast - 1, maxPast, maxPast + 1, 2*maxPast + 7} {
		var p pastNudges
		for i := range n {
			p.add(nudged{at(i), at(i).Add(time.Millisecond)})
		}
		oldest := max(0, n-maxPast)
		for i := -1; i <= n; i++ {
			for off := range 2 { // at its begin, and after it
				want := max(i+off, oldest)
				ended, known := p.after(at(i).Add(time.Duration(off) * time.Millisecond))
				if known != (want < n) || known && !ended.Equal(at(want).Add(time.Millisecond)) {
					t.Fatalf("of %d, %d ms after number %d: %v, %v, want number %d", n, off, i, ended, known, want)
				}
			}
		}
	}
}

// Nobody receives, so messages that are gone have expired, to the last one of the queue.
func TestMessagesThatAreGoneWhileNobodyReceivesHaveExpired(t *testing.T) {
	play(t, func(s *scene) {
		sent := s.send(life, life, life)
		read := time.Now()
		if since, _, err := s.Begin(s.Context(), s.work, s.dead, read); err != nil || !since.Equal(read) {
			t.Fatalf("begun at %v, %v, want at %v", since, err, read)
		}
		if since, observed := s.Observes(); !observed || !since.Equal(read) {
			t.Errorf("it observes: %v, since %v, want since %v", observed, since, read)
		}
		time.Sleep(life + time.Second)
		due := sent.Add(life + search.StampPrecision)
		if got := s.proven(read, due, 1, 2, 3); !slices.Equal(got, []int64{1, 2, 3}) {
			t.Errorf("proven to have expired: %v, want all three", got)
		}
	})
}

// A consumer took one meanwhile. It may have taken others.
func TestAConsumerEndsTheProof(t *testing.T) {
	play(t, func(s *scene) {
		sent := s.send(life, life, life)
		read := time.Now()
		if _, _, err := s.Begin(s.Context(), s.work, s.dead, read); err != nil {
			t.Fatal(err)
		}
		s.take()
		time.Sleep(life + time.Second)
		if got := s.proven(read, sent.Add(life+search.StampPrecision), 1, 2, 3); len(got) != 0 {
			t.Errorf("proven to have expired: %v, want none", got)
		}
	})
}

// What nudges have shown of a queue says nothing of the one that has its name now.
func TestWhatWasObservedIsForgottenWithTheQueue(t *testing.T) {
	play(t, func(s *scene) {
		s.send(time.Hour)
		if since, _, err := s.Begin(s.Context(), s.work, s.dead, time.Now()); err != nil || since.IsZero() {
			t.Fatalf("begun at %v, %v", since, err)
		}
		s.Forget()
		if _, observed := s.Observes(); observed {
			t.Error("the queue is still observed")
		}
	})
}

// A nudge whose read fails is no observation, and leaves no receiver open, which would keep an idle
// queue from being deleted.
func TestAFailedReadLeavesNoReceiverOpen(t *testing.T) {
	play(t, func(s *scene) {
		s.send(time.Hour)
		if _, _, err := s.Begin(s.Context(), s.work, s.dead, time.Now()); err != nil {
			t.Fatal(err)
		}
		remove := s.ns.Broker.Default().Inject(broker.Fault{
			Entity: orders, Operation: broker.OnManagement, Error: amqp.Errorf(amqp.ErrCondInternalError, "out of order"),
		})
		s.Want(s.Context(), time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		remove()
		if _, observed := s.Observes(); len(s.failed) != 1 || observed {
			t.Errorf("failures %v, and the queue is observed: %v, want one failure, and no observation", s.failed, observed)
		}
		s.work.Close(s.Context())
		s.dead.Close(s.Context())
		time.Sleep(2 * idle)
		if _, ok := s.ns.Broker.Queue(orders); ok {
			t.Error("the idle queue is still there, so a link is open")
		}
	})
}
