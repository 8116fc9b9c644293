// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"
	"time"

	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// Messages that slots stand for are known by entity, in any case, and by the latest stamp.
func TestSlotsAreKnownUpToTheLatestStamp(t *testing.T) {
	setup(t, func(t *testing.T, _ *brokertest.Namespace, s *scheduler.Scheduler) {
		until := time.Now().Add(time.Minute)
		s.ExpectInSlots("Orders", until)
		s.ExpectInSlots("orders", until.Add(-time.Second)) // an earlier one takes nothing back
		for _, c := range []struct {
			entity string
			at     time.Time
			want   bool
		}{
			{"orders", until, true},
			{"ORDERS", until.Add(-time.Hour), true},
			{"orders", until.Add(time.Millisecond), false},
			{"invoices", until, false},
		} {
			if got := s.InSlots(c.entity, c.at); got != c.want {
				t.Errorf("InSlots(%s, %v before the latest) = %v, want %v", c.entity, until.Sub(c.at), got, c.want)
			}
		}
	})
}
