// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"net/http"
	"testing"
	"time"

	"overdue/internal/testing/racetest"
)

// An event that its sink does not take is notified for about a day. Its companion is a dead
// letter then, where operators find it.
func TestAnEventThatNoSinkAcceptsIsGivenUpAfterADay(t *testing.T) {
	racetest.Skip(t, "it lasts for days of fake time")
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.Hook.Answer(http.StatusInternalServerError)
		s.send(workQueue, "m", ttl(3*time.Second))
		dead := func() int64 { return s.CompanionsKept().Dead }
		time.Sleep(24 * time.Hour)
		if n := dead(); n != 0 || s.CompanionsLeft() != 1 {
			s.Errorf("%d companions are given up within a day and %d left, want none and one", n, s.CompanionsLeft())
		}
		time.Sleep(3 * time.Hour)
		if n := dead(); n != 1 || s.CompanionsLeft() != 0 {
			s.Errorf("%d companions are given up after 27 hours and %d left, want one and none", n, s.CompanionsLeft())
		}
		s.wantNotified()
	})
}
