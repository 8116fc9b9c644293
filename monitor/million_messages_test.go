// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker/queue"
	"overdue/internal/testing/racetest"
	"overdue/scheduler"
)

// The cost of a few overdue messages does not grow with the queue in which they stand: a million
// live ones are not read.
func TestOverdueMessagesInAQueueOfAMillion(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	const batch = 1000
	for _, c := range []struct {
		overdue, live int
		most          float64 // operations, in all
	}{{10, racetest.Sized(200_000, 50_000), 300}, {1000, racetest.Sized(1_000_000, 100_000), 6000}} {
		t.Run(fmt.Sprint(c.overdue), func(t *testing.T) {
			play(t, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				q, patterns := s.Queue(workQueue), s.patterns("live", "overdue")
				filler := slices.Repeat([]queue.Message{{Body: patterns["live"], MessageID: "live", TTL: time.Hour}}, batch)
				due := time.Now().Add(time.Minute)
				var refs []scheduler.Reference
				for i := range c.live {
					if i%batch == 0 {
						if _, err := q.Send(filler...); err != nil {
							s.Fatal(err)
						}
						time.Sleep(5 * time.Millisecond)
					}
					if i%(c.live/c.overdue) == 0 {
						now, id := time.Now(), fmt.Sprintf("overdue-%06d", len(refs))
						body := []byte(strings.Replace(string(patterns["overdue"]), "overdue-000000", id, 1))
						if _, err := q.Send(queue.Message{Body: body, MessageID: id, TTL: due.Sub(now)}); err != nil {
							s.Fatal(err)
						}
						refs = append(refs, scheduler.Reference{
							MessageID: id, Sent: now, From: now.Add(-10 * time.Millisecond), Until: now.Add(10 * time.Millisecond),
							Deadline: due, Stated: "deadline",
						})
					}
				}
				if err := s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, References: refs}); err != nil {
					s.Fatal(err)
				}
				time.Sleep(time.Until(due.Add(30 * time.Second)))
				if notified := s.Hook.Subjects(); len(notified) != c.overdue || len(slices.Compact(notified)) != c.overdue {
					s.Errorf("%d events, want one for each of %d messages", len(notified), c.overdue)
				}
				if n := q.Counts(); n.Active != c.live || n.DeadLetter != c.overdue {
					s.Errorf("%d live messages and %d dead letters, want %d and %d", n.Active, n.DeadLetter, c.live, c.overdue)
				}
				for _, lag := range s.Lags(workQueue) {
					if lag > 100*time.Millisecond {
						s.Errorf("dead-lettered %v late, want 100ms at most", lag)
						break
					}
				}
				ops := float64(s.written.Load()) + s.Operations("")
				s.Logf("%d overdue among %d: %.0f operations, %.0f of them peeks", c.overdue, c.live, ops, s.Operations("peek"))
				if ops > c.most {
					s.Errorf("%.0f operations, want at most %.0f", ops, c.most)
				}
			})
		})
	}
}

// patterns are messages with these names as an app encodes them. Digits may be appended to the
// name of each.
func (s *scene) patterns(names ...string) map[string][]byte {
	s.Helper()
	sender, err := s.Client.NewSender(otherQueue, nil)
	s.Must(err)
	all := map[string][]byte{}
	for _, name := range names {
		id := name + "-000000"
		s.Must(sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: &id, Body: []byte("x")}, nil))
	}
	for i, v := range s.Waiting(otherQueue) {
		all[names[i]] = v.Body
	}
	s.Must(sender.Close(s.Context()))
	return all
}
