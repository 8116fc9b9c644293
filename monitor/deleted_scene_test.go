// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"slices"
	"testing"
	"time"

	"overdue/internal/testing/racetest"
)

// A consumer deletes dead letters with the delivery, so that no read can find any, and the messages
// become due faster than checks can precede them. All are notified: until the queue runs empty, and
// where every message has the same time to live, so that each nudge expires the oldest one.
func TestManyDeadLettersThatAreDeletedWithTheDelivery(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	for _, c := range []struct {
		what  string
		stay  int // messages that outlive the others
		lives func(s *scene) []time.Duration
	}{
		{"older messages stay", 20, func(s *scene) []time.Duration { return s.shuffled(6000, 4*time.Second, 250*time.Microsecond) }},
		{"the queue runs empty", 0, func(s *scene) []time.Duration { return s.shuffled(6000, 4*time.Second, 250*time.Microsecond) }},
		{"one time to live", 0, func(*scene) []time.Duration { return slices.Repeat([]time.Duration{4 * time.Second}, 6000) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			play(t, func(s *scene) {
				s.slots = true
				s.MeasureClock()
				s.startMonitor()
				defer s.drainDeadLetters()()
				if c.stay > 0 {
					s.sendBatch(workQueue, c.stay, time.Minute)
				}
				lives := c.lives(s)
				for some := range slices.Chunk(lives, 50) { // in 1.2 s
					s.sendLives(workQueue, some)
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(20 * time.Second)
				s.wantAllAccountedFor(len(lives))
			})
		})
	}
}

// Slots that stand for many times to live lead to reads of a long range, which begin with a nudge.
// Where the queue drops what expires, that nudge would drop it.
func TestSlotsOfAQueueThatDropsAreNotNudged(t *testing.T) {
	racetest.Skip(t, "it needs hundreds of messages; small scenes show the races")
	play(t, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		s.sendLives(workQueue, s.shuffled(600, 2*time.Second, 5*time.Millisecond))
		time.Sleep(10 * time.Second)
		if n := len(s.Waiting(workQueue)); n != 600 {
			s.Errorf("%d messages are on the queue, want all 600, which nobody received since they have expired", n)
		}
	}, dropping)
}
