// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"overdue/internal/operator/canary"
)

// The canary's deadline is missed and found, as long as somebody monitors; two that share a
// queue do not take each other's; and nothing stays behind.
func TestCanaryComesBackWhileTheMonitorRuns(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		stop := s.startMonitor()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 2)
		var birds []*canary.Canary
		for range 2 {
			c, err := canary.New(canary.Config{
				Links: s.Namespace.Links(s.T), Queue: workQueue, Interval: time.Minute,
				Send: func(_ context.Context, id string, life time.Duration) error {
					if code, body := s.post(workQueue, id, ttl(life)); code != http.StatusCreated {
						return fmt.Errorf("%d %s", code, body)
					}
					return nil
				},
			})
			if err != nil {
				s.Fatal(err)
			}
			birds = append(birds, c)
			go func() { ended <- c.Run(ctx) }()
		}
		check := func(when string, well bool) {
			s.Helper()
			for i, c := range birds {
				if err := c.Check(ctx); (err == nil) != well {
					s.Errorf("%s, canary %d: %v, want it well: %v", when, i, err, well)
				}
			}
		}
		check("at the start", false)
		time.Sleep(5*time.Minute + 30*time.Second)
		check("while a monitor runs", true)
		stop()
		time.Sleep(4 * time.Minute)
		check("without a monitor", false)
		s.startMonitor()
		time.Sleep(5 * time.Minute)
		check("with a monitor again", true)
		cancel()
		for range birds {
			if err := <-ended; err != nil {
				s.Errorf("Run = %v", err)
			}
		}
		// A message that the monitor found late was lost to its canary, and the next canary dead-lettered
		// it once it was stale.
		if c := s.Queue(workQueue).Counts(); c.Active != 0 || c.DeadLetter > 10 {
			t.Errorf("left: %+v", c)
		}
	})
}
