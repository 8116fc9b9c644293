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
		name          string
		overdue, live int
		stated        string        // what the references say
		window        time.Duration // likewise; the queue is filled in a second
		copies        int           // of each message, sent at the same time
		most          float64       // operations, in all
	}{
		{"10", 10, racetest.Sized(200_000, 50_000), "deadline", 20 * time.Millisecond, 1, 300},
		{"1000", 1000, racetest.Sized(1_000_000, 100_000), "deadline", 20 * time.Millisecond, 1, 6000},
		{"10 by their time to live", 10, racetest.Sized(200_000, 50_000), "ttl", 2 * time.Second, 1, 300},
		{"twins by their time to live", 10, racetest.Sized(200_000, 50_000), "ttl", 2 * time.Second, 2, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
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
						m := queue.Message{Body: body, MessageID: id, TTL: due.Sub(now)}
						if _, err := q.Send(slices.Repeat([]queue.Message{m}, c.copies)...); err != nil {
							s.Fatal(err)
						}
						ref := scheduler.Reference{
							MessageID: id,
							Sent:      now,
							From:      now.Add(-10 * time.Millisecond),
							Until:     now.Add(c.window - 10*time.Millisecond),
							Deadline:  due,
							Stated:    c.stated,
						}
						if c.stated == "ttl" {
							ref.Within = due.Sub(now)
						}
						refs = append(refs, slices.Repeat([]scheduler.Reference{ref}, c.copies)...)
					}
				}
				if err := s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, References: refs}); err != nil {
					s.Fatal(err)
				}
				time.Sleep(time.Until(due.Add(30 * time.Second)))
				overdue := c.overdue * c.copies
				if notified := s.Hook.Subjects(); len(notified) != overdue || len(slices.Compact(notified)) != c.overdue {
					s.Errorf("%d events, want one for each of %d messages", len(notified), overdue)
				}
				if n := q.Counts(); n.Active != c.live || n.DeadLetter != overdue {
					s.Errorf("%d live messages and %d dead letters, want %d and %d", n.Active, n.DeadLetter, c.live, overdue)
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
