// SPDX-License-Identifier: Apache-2.0

package nudge

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operations"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
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

// scene is a queue, and what nudges it.
type scene struct {
	*testing.T
	*Nudger
	ns     *brokertest.Namespace
	failed []error
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
		s.Nudger = New(Config{
			Links:      ns.Links(t),
			Path:       orders,
			Clock:      clock,
			Operations: operations.New(prometheus.NewRegistry()),
			Remembered: time.Minute,
			Nudged: func(err error) {
				if err != nil {
					s.failed = append(s.failed, err)
				}
			},
			Go: func(f func()) { go f() },
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

func (s *scene) queue() *queue.Queue {
	s.Helper()
	q, ok := s.ns.Broker.Queue(orders)
	if !ok {
		s.Fatal("the queue is gone")
	}
	return q
}

// nudges returns how many nudges are remembered.
func (s *scene) nudges() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.past)
}

// want requests a nudge at each of these instants.
func (s *scene) want(due ...time.Time) {
	for _, at := range due {
		s.Want(s.Context(), at, at)
	}
}

// made returns when the last nudge began.
func (s *scene) made() (begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.past) > 0 {
		begun = s.past[len(s.past)-1].begun
	}
	return begun
}

// A nudge moves what is overdue and leaves what is live as it was. It says when it has moved it.
func TestANudgeMovesWhatIsOverdue(t *testing.T) {
	play(t, func(s *scene) {
		sent := s.send(life, time.Hour, life)
		s.want(sent.Add(life + search.StampPrecision))
		time.Sleep(life + time.Second)
		synctest.Wait()
		if c := s.queue().Counts(); c.Active != 1 || c.DeadLetter != 2 {
			t.Errorf("%+v, want one active and two dead letters", c)
		}
		if left := brokertest.Seen(s.queue().Peek(nil, 0, 10)); len(left) != 1 || left[0].DeliveryCount != 0 {
			t.Errorf("%+v are left, want one that was not delivered", left)
		}
		if at, known := s.MadeFor(sent.Add(life)); !known || at.Before(sent.Add(life)) || at.After(sent.Add(life+time.Second)) {
			t.Errorf("moved at %v, known %v, want right after the deadline", at, known)
		}
		if !s.made().After(sent.Add(life)) || len(s.failed) != 0 {
			t.Errorf("the last nudge was made at %v, failures %v", s.made(), s.failed)
		}
	})
}

// A nudge holds the oldest live message for a round trip, and competing consumers overtake it
// meanwhile. However many are wanted, that message is free for two thirds of the time.
func TestNudgesLeaveTheOldestMessageFreeMostOfTheTime(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			play(t, func(s *scene) {
				s.send(time.Hour)
				s.ns.Net.Delay(pipenet.Both, delay)
				begin := time.Now().Add(time.Second)
				s.Want(s.Context(), begin, begin.Add(10*time.Second))
				time.Sleep(time.Until(begin))
				held, samples := 0, 10_000
				for range samples {
					time.Sleep(time.Millisecond)
					synctest.Wait()
					if brokertest.Seen(s.queue().Peek(nil, 0, 1))[0].Locked {
						held++
					}
				}
				if 3*held > samples {
					t.Errorf("the oldest message was held in %d of %d ms, want a third at most", held, samples)
				}
				<-s.Rest()
				if len(s.failed) > 0 || s.nudges() < 5 {
					t.Errorf("%d nudges, failures %v, want some and none", s.nudges(), s.failed)
				}
			})
		})
	}
}

// Deadlines that lie closer than nudges may follow each other share them.
func TestDeadlinesThatLieCloseShareANudge(t *testing.T) {
	play(t, func(s *scene) {
		const span = 100 * time.Millisecond
		begin := time.Now().Add(time.Second)
		var due []time.Time
		for at := time.Duration(0); at <= span; at += 100 * time.Microsecond {
			due = append(due, begin.Add(at))
		}
		slices.Reverse(due)
		s.want(due...)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if most := int(span/nudgeInterval) + 2; s.nudges() > most || s.made().Before(due[0]) {
			t.Errorf("%d nudges, the last one at %v, want %d at most, until %v", s.nudges(), s.made(), most, due[0])
		}
	})
}

// The first nudge that began at an instant or later is found, however many there were, unless that
// was too long ago.
func TestPastNudgesAreFound(t *testing.T) {
	const interval, remembered = 10 * time.Millisecond, 5 * time.Second
	begin := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(i int) time.Time { return begin.Add(time.Duration(i) * interval) }
	for _, count := range []int{0, 1, 2, 500, 501, 502, 1000} {
		n := &Nudger{Config: Config{Remembered: remembered}}
		for i := range count {
			n.note(pastNudge{begun: at(i), ended: at(i).Add(time.Millisecond)})
		}
		oldest := max(0, count-1-int(remembered/interval))
		for i := -1; i <= count; i++ {
			for off := range 2 { // at its begin, and after it
				want := max(i+off, oldest)
				ended, known := n.MadeFor(at(i).Add(time.Duration(off) * time.Millisecond))
				if known != (want < count) || known && !ended.Equal(at(want).Add(time.Millisecond)) {
					t.Fatalf("of %d, %d ms after number %d: %v, %v, want number %d", count, off, i, ended, known, want)
				}
			}
		}
	}
}

// A receiver that the broker has closed is opened again for the same nudge.
func TestAReceiverThatWasLostIsOpenedAgain(t *testing.T) {
	play(t, func(s *scene) {
		sent := s.send(life)
		due := sent.Add(life)
		s.want(due.Add(-300*time.Millisecond), due)
		time.Sleep(time.Until(due.Add(-100 * time.Millisecond)))
		s.ns.Net.Cut()
		time.Sleep(time.Second)
		synctest.Wait()
		if c := s.queue().Counts(); c.DeadLetter != 1 || len(s.failed) != 0 {
			t.Errorf("%+v, failures %v, want one dead letter, and none", c, s.failed)
		}
	})
}

// An entity that cannot be received from is reported for each nudge. No receiver stays open, which
// would keep an idle queue from being deleted.
func TestAFailedNudgeIsReportedAndLeavesNoReceiverOpen(t *testing.T) {
	play(t, func(s *scene) {
		remove := s.ns.Broker.Default().Inject(broker.Fault{
			Entity: orders, Operation: broker.OnAttach, Error: amqp.Errorf(amqp.ErrCondInternalError, "out of order"),
		})
		s.want(time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		if len(s.failed) != 1 || s.made().IsZero() {
			t.Errorf("failures %v, made at %v, want one failure", s.failed, s.made())
		}
		remove()
		s.want(time.Now())
		time.Sleep(2 * idle)
		synctest.Wait()
		if len(s.failed) != 1 {
			t.Errorf("failures %v, want that the second nudge works", s.failed)
		}
		if _, ok := s.ns.Broker.Queue(orders); ok {
			t.Error("the idle queue is still there, so a link is open")
		}
	})
}
