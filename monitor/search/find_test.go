// SPDX-License-Identifier: Apache-2.0

package search

import (
	"slices"
	"testing"
	"time"

	"overdue/internal/testing/pipenet"
)

// wantFound fails unless see got all these.
func (s *scene) wantFound(wanted []Identity) {
	s.Helper()
	seen := s.take()
	for _, w := range wanted {
		if !slices.Contains(seen, w) {
			s.Errorf("message %v was not found among %d messages", w, len(seen))
		}
	}
}

// Messages stand anywhere on a queue. Those near each other share a page, and pages are read side
// by side.
func TestFindReadsThePagesOfItsMessages(t *testing.T) {
	play(t, func(s *scene) {
		s.send(20_000, time.Millisecond)
		all := s.all()
		for _, c := range []struct {
			name string
			step int // from one wanted message to the next
			n    int
			most int // peeks
		}{
			{"one", 1, 1, 1},
			{"neighbours", 1, 500, 2},
			{"a few apart", 10, 1000, 40},
			{"pages apart", 1000, 20, 20},
		} {
			var wanted []Identity
			for i := range c.n {
				wanted = append(wanted, all[i*c.step])
			}
			slices.Reverse(wanted)
			peeks := s.peeks(func() { s.must(s.view.Find(s.Context(), wanted, s.see)) })
			s.wantFound(wanted)
			if peeks > c.most {
				s.Errorf("%s: %d peeks, want %d at most", c.name, peeks, c.most)
			}
		}
	})
}

// Where messages stand far apart, the pages of many are read in about the time of one.
func TestFindReadsPagesSideBySide(t *testing.T) {
	play(t, func(s *scene) {
		s.send(20_000, time.Millisecond)
		var wanted []Identity
		for i, m := range s.all() {
			if i%200 == 0 {
				wanted = append(wanted, m)
			}
		}
		s.must(s.view.Find(s.Context(), wanted[:1], s.see)) // the link is open
		const roundTrip = 100 * time.Millisecond
		s.ns.Net.Delay(pipenet.ToListener, roundTrip)
		began := time.Now()
		s.must(s.view.Find(s.Context(), wanted, s.see))
		s.wantFound(wanted)
		if took := time.Since(began); took > 8*roundTrip {
			s.Errorf("%v for 100 pages, want at most 8 times the %v of one", took, roundTrip)
		}
	})
}

// Most of what is wanted is gone, with all that stood around it.
func TestFindCrossesGaps(t *testing.T) {
	play(t, func(s *scene) {
		s.send(5000, time.Millisecond)
		wanted := s.all()
		s.receive(4990)
		s.send(1, time.Millisecond)
		left := s.all()
		peeks := s.peeks(func() { s.must(s.view.Find(s.Context(), wanted, s.see)) })
		s.wantFound(left[:10])
		if peeks > 2 {
			s.Errorf("%d peeks, want 2 at most: the first page reaches beyond the gap", peeks)
		}
		s.receive(11)
		s.must(s.view.Find(s.Context(), wanted, s.see))
		s.must(s.view.Find(s.Context(), nil, s.see))
		if seen := s.take(); len(seen) > 0 {
			s.Errorf("%d messages of an empty queue", len(seen))
		}
	})
}

// Nothing says that the queue is partitioned: the View finds that out by what it reads.
func TestFindOnAPartitionedQueue(t *testing.T) {
	play(t, func(s *scene) {
		s.send(1000, time.Millisecond)
		all := s.all()
		wanted := []Identity{all[900], all[100], all[500]}
		s.must(s.view.Find(s.Context(), wanted, s.see))
		s.wantFound(wanted)
		if !s.view.Unordered {
			s.Error("the View does not know that the queue is partitioned")
		}
		peeks := s.peeks(func() { s.must(s.view.Find(s.Context(), all[:3], s.see)) })
		s.wantFound(all[:3])
		if peeks != 1 {
			s.Errorf("%d peeks for messages of the first page, want 1", peeks)
		}
		gone := Identity{all[0].Number, all[0].Enqueued + 1}
		s.must(s.view.Find(s.Context(), []Identity{gone}, s.see))
		s.wantFound(all)
	}, partitioned)
}

func TestFirstPageIsThatOfTheOldest(t *testing.T) {
	for _, of := range []int{0, 10, 1000} {
		play(t, func(s *scene) {
			s.send(of, time.Millisecond)
			_, err := s.view.First(s.Context(), s.see)
			s.must(err)
			if n := len(s.take()); n != min(of, PageSize) {
				s.Errorf("%d messages of %d, want a page", n, of)
			}
		})
	}
	play(t, func(s *scene) {
		s.send(100, time.Millisecond)
		_, err := s.view.First(s.Context(), s.see)
		s.must(err)
		s.wantFound(s.all())
	}, partitioned)
}
