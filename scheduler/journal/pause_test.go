// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// A monitor queue that is down is asked again after pauses that grow to between half of five
// seconds and five seconds. It is neither flooded, nor does it wait longer when it is back.
func TestAMonitorQueueThatIsDownIsAskedAgainWithinFiveSeconds(t *testing.T) {
	directory := t.TempDir()
	var mu sync.Mutex
	var asked []time.Time
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, _ := start(t, s, directory)
		schedule(t, j, one("before", time.Now().Add(time.Hour))) // which opens the link
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("first", time.Now().Add(time.Hour)))
		time.Sleep(time.Minute) // the pauses have grown
		mu.Lock()
		asked = nil
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(asked) < 100 {
			t.Fatalf("it was asked %d times in ten minutes, want once in 2.5 to 5 s", len(asked))
		}
		for i := range asked[1:] {
			if pause := asked[i+1].Sub(asked[i]); pause < 2500*time.Millisecond || pause > 5100*time.Millisecond {
				t.Errorf("it was asked again after %v, want 2.5 to 5 s", pause)
			}
		}
		end()
	}, func(_ *broker.Config, c *scheduler.Config) {
		c.Written = func(int, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Now())
		}
	})
}

// Nothing is taken for kept whose file is closed.
func TestAClosedJournalTakesNothing(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, stop := start(t, s, directory)
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("kept", time.Now().Add(time.Hour)))
		stop()
		if err := j.Begin(one("late", time.Now().Add(time.Hour)))(t.Context()); !errors.Is(err, scheduler.ErrClosed) {
			t.Errorf("a companion for a closed journal = %v, want ErrClosed", err)
		}
		end()
	})
}
