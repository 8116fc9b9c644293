// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"errors"
	"testing"
	"time"
)

func TestANotificationIsUndeliverableAfterADay(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		refused := func() int {
			s.o.mu.Lock()
			defer s.o.mu.Unlock()
			return len(s.o.refused)
		}
		s.p.mu.Lock()
		s.p.err = errors.New("down")
		s.p.mu.Unlock()
		s.miss("orders", 1)
		s.pass(24 * time.Hour)
		if n := refused(); n != 0 {
			t.Errorf("%d digests are given up within a day, want none", n)
		}
		s.pass(3 * time.Hour)
		if n := refused(); n != 1 {
			t.Errorf("%d digests are given up after 27 hours, want 1", n)
		}
		s.want()
	})
}
