// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
)

// Few deadlines are missed on a queue, one after the other, and dead letters stay. Each but the
// first takes its nudge and one read of dead letters. The position of its message was on a page
// that was read for another one, and the same read shows that dead letters still stay.
func TestFewDeadlinesOfOneQueueShareTheirPeeks(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		const n = 10
		for i := range n {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(2*time.Second+time.Duration(i)*500*time.Millisecond))
		}
		time.Sleep(20 * time.Second)
		for i, lag := range s.Lags(workQueue) {
			if lag > 5*time.Millisecond {
				s.Errorf("message %d was dead-lettered %v late", i, lag)
			}
		}
		s.wantNotifiedOfAll(workQueue)
		if peeks := s.Operations("peek"); peeks > 40 {
			s.Errorf("%v peeks for %d messages, want 40 at most", peeks, n)
		}
	})
}

// A reminder is due shortly before a deadline, on a queue where the nudge comes first. Whether its
// message is still there is seen then, although it was on a page that was read before.
func TestReminderWhereTheNudgeComesFirst(t *testing.T) {
	for _, received := range []bool{false, true} {
		play(t, func(s *scene) {
			s.MeasureClock()
			s.startMonitor()
			s.send(workQueue, "first", ttl(2*time.Second))
			s.send(workQueue, "second", ttl(3*time.Second))
			s.send(workQueue, "third", ttl(4100*time.Millisecond))
			s.send(workQueue, "m", ttl(5*time.Second), completed(4800*time.Millisecond)...)
			time.Sleep(4500 * time.Millisecond)
			want := []string{"missed first", "missed second", "missed third"}
			if received {
				r, m := s.receive(workQueue)
				s.Must(r.CompleteMessage(s.Context(), m, nil))
			} else {
				want = append(want, "incomplete m", "missed m")
			}
			time.Sleep(10 * time.Second)
			s.WantEvents(want...)
		})
	}
}

// A consumer holds a message beyond its deadline, and settles it while the monitor opens the
// receiver of its nudge. The earlier result of the search is no evidence then.
func TestSettledWhileTheReceiverOfTheNudgeOpens(t *testing.T) {
	for _, opens := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond} {
		play(t, func(s *scene) {
			s.MeasureClock()
			s.startMonitor()
			s.send(workQueue, "m", ttl(2*time.Second))
			due := time.Now().Add(2 * time.Second)
			r, m := s.receive(workQueue)
			time.Sleep(time.Until(due.Add(-time.Millisecond)))
			remove := s.Namespace.Broker.Default().Inject(broker.Fault{Operation: broker.OnAttach, Entity: workQueue, Delay: opens})
			time.Sleep(time.Until(due.Add(opens / 2)))
			s.Must(r.CompleteMessage(s.Context(), m, nil))
			time.Sleep(10 * time.Second)
			remove()
			s.wantNotified()
			s.Settled(time.Second)
		})
	}
}

// One nudge expires several messages. The dead letters that were read behind it save a search of
// the work queue for each.
func TestDeadLettersBehindANudgeServeAllThatItExpired(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		due := time.Now().Add(2 * time.Second)
		const n = 8
		for i := range n {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(time.Until(due)+time.Duration(i)*time.Millisecond))
			s.sendBatch(workQueue, 100, time.Hour) // so that no page has two of them
		}
		time.Sleep(1900 * time.Millisecond)
		before := s.Operations("peek")
		defer s.Namespace.Broker.Default().Inject(broker.Fault{Operation: broker.OnAttach, Entity: workQueue, Delay: 20 * time.Millisecond})()
		time.Sleep(10 * time.Second)
		s.wantNotifiedOfAll(workQueue)
		if peeks := s.Operations("peek") - before; peeks > 20 {
			s.Errorf("%v peeks from shortly before the deadlines on, want 20 at most", peeks)
		}
	})
}

// The first deadline that is missed on a queue waits for one round trip before its nudge: the
// receiver is open before it.
func TestFirstDeadlinesOfAQueueAreNotLate(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "first", ttl(2*time.Second))
		s.send(workQueue, "second", ttl(3*time.Second))
		for _, f := range []broker.Fault{{Operation: broker.OnAttach}, {Operation: broker.OnManagement, Request: "com.microsoft:peek-message"}} {
			f.Entity, f.Delay = workQueue, 30*time.Millisecond
			defer s.Namespace.Broker.Default().Inject(f)()
		}
		time.Sleep(10 * time.Second)
		s.wantNotified("first", "second")
		lags := slices.Sorted(slices.Values(s.Lags(workQueue)))
		if lags[1] > 40*time.Millisecond {
			s.Errorf("dead-lettered %v late, want 40ms at most", lags)
		}
	})
}
