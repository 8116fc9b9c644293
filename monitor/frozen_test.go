// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/racetest"
)

// A line may freeze while the monitor scans. Messages on their way over it stay locked, until the
// locks lapse, and each of them is delivered once more than it was. No monitor can undo that, so it
// asks for no more messages than stand before the one that it searches for. A hundred live messages
// behind it are left alone, but for the one that shows that a consumer has it.
func TestAFrozenLineKeepsFewMessages(t *testing.T) {
	const lock, behind = 10 * time.Second, 100
	frozen := 0 // scenes in which the line has kept something
	for _, c := range []struct {
		name   string
		before int  // live messages
		held   bool // by a consumer, the overdue one and those before
		most   int  // that may be delivered once more
	}{
		{"at the head", 0, false, 0},
		{"behind a few", 10, false, 10},
		{"locked, at the head", 0, true, 1},
		{"locked, behind a few", 10, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for after := 2 * time.Millisecond; after < 60*time.Millisecond; after += time.Duration(racetest.Sized(3, 8)) * time.Millisecond {
				play(t, func(s *scene) {
					s.stamp = false // to be expired by hand
					s.Namespace.Net.Delay(pipenet.Both, time.Millisecond)
					s.MeasureClock()
					s.startMonitor()
					for i := range c.before {
						s.send(workQueue, fmt.Sprint("before-", i), ttl(time.Hour))
					}
					s.send(workQueue, "overdue", "", "Overdue-Within", `"2s"`)
					due := time.Now().Add(2 * time.Second)
					s.sendLives(workQueue, slices.Repeat([]time.Duration{time.Hour}, behind))
					if c.held {
						s.holdFirst(c.before + 1)
					}
					time.Sleep(time.Until(due) + after)
					s.Namespace.Net.Stall(pipenet.Both)
					time.Sleep(lock + time.Second)
					touched := 0
					for _, m := range s.Waiting(workQueue) {
						if m.DeliveryCount > 0 && m.MessageID != "overdue" && (!c.held || !strings.HasPrefix(m.MessageID, "before")) {
							touched++
						}
					}
					if touched > 0 {
						frozen++
					}
					if touched > c.most {
						s.Errorf("frozen %v after the deadline: %d live messages are delivered once more, want %d at most", after, touched, c.most)
					}
					s.Namespace.Net.Resume(pipenet.Both)
					s.Namespace.Net.Cut()
					time.Sleep(2 * time.Minute)
					if n := len(s.Dead(workQueue)); n != 1 {
						s.Errorf("frozen %v after the deadline: %d dead letters in the end, want the overdue one", after, n)
					}
				}, func(_ *scene, c *broker.Config) { c.Queues[0].LockDuration = lock })
			}
		})
	}
	if frozen == 0 {
		t.Error("no scene has frozen a scan")
	}
}

// holdFirst has a consumer lock the first n messages. It needs no line.
func (s *scene) holdFirst(n int) {
	s.Helper()
	c := s.Queue(workQueue).NewConsumer(queue.PeekLock)
	c.AddCredit(int64(n))
	if ds, _, _ := c.Take(nil); len(ds) != n {
		s.Fatalf("%d messages are held, want %d", len(ds), n)
	}
	c.Close()
}
