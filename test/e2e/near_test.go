// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"overdue/internal/broker"
)

// A message that is settled in time takes its companion along before anybody is warned.
func TestSettlementTakesWarningsAlong(t *testing.T) {
	play(t, func(s *scene) {
		tr := s.traffic()
		s.startMonitor()
		tr.send(time.Minute, "a", "b")
		tr.complete(2)
		time.Sleep(20 * time.Second)
		if got := s.waitingCompanions(); got != 0 {
			t.Errorf("%d companions wait for messages that are settled, want none", got)
		}
	}, early, warns(30*time.Second))
}

// warns has these warnings of each deadline.
func warns(before ...time.Duration) func(*scene, *broker.Config) {
	return func(s *scene, _ *broker.Config) { s.settings.WarnBefore = before }
}
