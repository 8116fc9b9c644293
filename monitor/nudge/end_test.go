// SPDX-License-Identifier: Apache-2.0

package nudge

import (
	"testing"
	"time"

	"overdue/internal/testing/pipenet"
)

// An entity that ends hands its messages back. A nudge behind that would expire them, and nobody
// would look at what it has expired.
func TestNoNudgeOutlivesItsEntity(t *testing.T) {
	play(t, func(s *scene) {
		s.ns.Net.Delay(pipenet.Both, 20*time.Millisecond)
		sent := s.send(life)
		begun := sent.Add(life)
		s.want(begun, begun.Add(time.Second))
		if s.Rest() == nil {
			t.Error("no nudge is under way while one is wanted, want the goroutine to end first")
		}
		time.Sleep(time.Second)
		if s.Rest() != nil {
			t.Error("a nudge is under way after a second without a wish, want none")
		}

		s.want(begun, begun.Add(time.Second))
		time.Sleep(time.Until(begun.Add(10 * time.Millisecond)))
		<-s.Rest()
		made := s.made()
		if made.Before(begun) {
			t.Errorf("the last nudge began at %v, want the end to wait for the one under way", made)
		}
		if c := s.queue().Counts(); c.DeadLetter != 1 {
			t.Errorf("%d dead letters, want the nudge to have expired the message", c.DeadLetter)
		}
		time.Sleep(5 * time.Second)
		if got := s.made(); !got.Equal(made) {
			t.Errorf("a nudge began at %v, want none after the end", got)
		}
	})
}
