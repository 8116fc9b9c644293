// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"

	"overdue/scheduler"
)

func TestWithoutWarnBeforeThereAreNoReminders(t *testing.T) {
	for want, s := range map[bool]Settings{false: {}, true: {WarnBefore: []time.Duration{time.Second}}} {
		e, _, _ := absent(t)
		e.settings.Settings = s
		if got := e.hasReminders(&scheduler.Reference{MessageID: "m"}, message(nil)); got != want {
			t.Errorf("with warnings %v before: hasMoments = %v, want %v", s.WarnBefore, got, want)
		}
	}
}
