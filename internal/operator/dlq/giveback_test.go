// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"overdue/internal/servicebus/link"
)

// A run that is stopped or refused keeps no locks: the next run gets all dead letters at once, not
// after the locks have lapsed.
func TestWhatARunDoesNotFinishIsGivenBack(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		play(t, func(s *scene) {
			s.dead(150)
			_, err := s.resubmit(filepath.Join(s.TempDir(), "journal.db"), func(r *Resubmission) {
				out, err := r.Links.Sender(s.Context(), "seated")
				if err != nil {
					s.Fatal(err)
				}
				r.Out, r.To, r.IsQueue = out, "seated", true
			})
			if link.Condition(err) != link.ConditionNotAllowed {
				s.Fatalf("copies without a session to a queue that requires one: %v, want that they are not allowed", err)
			}
			s.purgesAll(150)
		})
	})
	t.Run("stopped", func(t *testing.T) {
		play(t, func(s *scene) {
			s.dead(150)
			all := numbersOf(s.letters(orders, everything))
			ctx, stop := context.WithTimeout(s.Context(), 5*time.Second)
			defer stop()
			purged := 0
			_, _, err := Purge(ctx, s.links(), orders, all, hold, 1, func(n int) { purged += n })
			if err == nil || purged == 0 {
				s.Fatalf("purge that is stopped after a few: %v, %d purged, want an error after some", err, purged)
			}
			s.purgesAll(150 - purged)
		})
	})
}

// purgesAll purges all dead letters, without waiting.
func (s *scene) purgesAll(want int) {
	s.Helper()
	chosen := numbersOf(s.letters(orders, everything))
	purged := 0
	if _, _, err := Purge(s.Context(), s.links(), orders, chosen, hold, 0, func(n int) { purged += n }); err != nil {
		s.Fatal(err)
	}
	if purged != want || len(chosen) != 0 {
		s.Errorf("purged %d at once, and %d could not be had, want %d and none", purged, len(chosen), want)
	}
}

// A dead letter that somebody has locked is there; one that somebody has taken off is not. Only the
// former is worth another run.
func TestLockedAndGoneAreSorted(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(20)
		all := s.letters(orders, everything)
		other, err := s.links().BareReceiver(s.Context(), orders.Path(), nil)
		if err != nil {
			s.Fatal(err)
		}
		if _, err := receive(s.Context(), other, 10); err != nil { // the first ten are somebody else's
			s.Fatal(err)
		}
		chosen := numbersOf(all)
		chosen[1000] = true // never was
		if _, _, err := Purge(s.Context(), s.links(), orders, chosen, hold, 0, nil); err != nil {
			s.Fatal(err)
		}
		locked, gone, err := Sort(s.Context(), s.links(), orders, chosen)
		if err != nil {
			s.Fatal(err)
		}
		want := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
		if !slices.Equal(locked, want) || !slices.Equal(gone, []int64{1000}) {
			s.Errorf("locked %v and gone %v, want %v and [1000]", locked, gone, want)
		}
		time.Sleep(2 * time.Minute) // their locks lapse
		s.purgesAll(10)
	})
}
