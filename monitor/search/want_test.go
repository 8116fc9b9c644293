// SPDX-License-Identifier: Apache-2.0

package search

import (
	"testing"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// A message without a deadline of its own is not the one whose companion states a default, if the
// entity gives none any more. But right at the change it may have got the former one.
func TestAMessageHasNoDeadlineOnceTheDefaultIsGone(t *testing.T) {
	changed := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name     string
		enqueued time.Duration // after the change
		endless  bool
		message  link.Message
		fits     bool
	}{
		{"before the change", -time.Minute, true, link.Message{}, true},
		{"in the same millisecond", 0, true, link.Message{}, true},
		{"later", StampPrecision, true, link.Message{}, false},
		{"much later", time.Minute, true, link.Message{}, false},
		{"later, with a time to live of its own", time.Minute, true, link.Message{TimeToLive: time.Minute}, true},
		{"later, under another default", time.Minute, false, link.Message{}, true},
		{"later, and it has expired", time.Minute, true, link.Message{DeadLetterReason: ReasonExpired}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.message
			m.MessageID, m.EnqueuedTime = "m", changed.Add(c.enqueued)
			w := &Want{Ref: &scheduler.Reference{Stated: "default"}, MessageID: "m", Until: Forever, Endless: c.endless, Since: changed}
			if got := w.Fits(&m); got != c.fits {
				t.Errorf("Fits = %v, want %v", got, c.fits)
			}
		})
	}
}
