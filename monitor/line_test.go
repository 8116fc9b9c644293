// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/testing/pipenet"
)

// Where deadlines are being missed, the receiver of a nudge is open before the deadline. So a
// missed one waits for half a round trip, and by how much the clock of the broker may be ahead,
// which is half of one too.
func TestLagOverALine(t *testing.T) {
	const half = 20 * time.Millisecond
	for _, c := range []struct {
		name  string
		every time.Duration
		slots bool
	}{
		{"sparse", 500 * time.Millisecond, false},
		{"dense", 7 * time.Millisecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.slots = c.slots
				s.MeasureClock()
				s.startMonitor()
				s.Namespace.Net.Delay(pipenet.Both, half)
				for i := range 300 {
					s.send(workQueue, fmt.Sprint("m-", i), ttl(5*time.Second))
					time.Sleep(c.every)
				}
				time.Sleep(30 * time.Second)
				lags := s.Lags(workQueue)
				if len(lags) != 300 {
					s.Fatalf("%d dead letters, want 300", len(lags))
				}
				s.Logf("lag p50 %v, p90 %v, at most %v", lags[150], lags[270], lags[299])
				// A nudge rests twice its own round trip, so that the oldest message is free meanwhile.
				if most := 4*2*half + 2*time.Millisecond; lags[270] > most {
					s.Errorf("lag p90 is %v, want %v at most", lags[270], most)
				}
				notifiedOnceEach(s, 300)
			})
		})
	}
}
