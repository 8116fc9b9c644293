// SPDX-License-Identifier: Apache-2.0

package search

import (
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/internal/testing/testseed"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func TestIndexPointsStayInOrderAndBounded(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	var x sequenceIndex
	for range 5000 {
		n := rng.Int64N(1_000_000)
		x.add(indexPoint{Number: n, Enqueued: noon.Add(time.Duration(n) * time.Millisecond)})
	}
	if len(x) > PageSize {
		t.Errorf("%d points, want at most %d", len(x), PageSize)
	}
	for i := 1; i < len(x); i++ {
		if x[i-1].Number >= x[i].Number {
			t.Fatalf("point %d has number %d after %d", i, x[i].Number, x[i-1].Number)
		}
	}
	at := noon.Add(500_000 * time.Millisecond)
	if s := newSeeker(x, at); !s.lo.Enqueued.Before(at) || s.hi.Enqueued.Before(at) || s.hi.Number-s.lo.Number > 100_000 {
		t.Errorf("a seek begins between %v and %v, want the neighbours of %v", s.lo, s.hi, at)
	}
}

// arrivals makes a queue of n messages. However they arrived, some of their neighbours are gone.
func arrivals(rng *rand.Rand, n int, pause func(i int) time.Duration) (all []*link.Message) {
	at, number := noon, int64(1)
	for i := range n {
		at = at.Add(pause(i))
		number += 1 + int64(rng.IntN(2)*rng.IntN(40))
		all = append(all, &link.Message{SequenceNumber: number, EnqueuedTime: at.Truncate(time.Millisecond)})
	}
	return all
}

// A seek ends at the page on which the messages of a time begin, or right before it. It takes few
// peeks where messages arrived evenly, and a bounded number of them however they arrived.
func TestASeekTakesFewPeeksHoweverMessagesArrived(t *testing.T) {
	seed := testseed.Of(t)
	for name, c := range map[string]struct {
		pause func(rng *rand.Rand) func(i int) time.Duration
		most  int // peeks, on the average
	}{
		"evenly": {func(*rand.Rand) func(int) time.Duration { return func(int) time.Duration { return time.Millisecond } }, 4},
		"in bursts": {func(rng *rand.Rand) func(int) time.Duration {
			return func(i int) time.Duration { return time.Duration(rng.IntN(2)*rng.IntN(3)) * time.Millisecond }
		}, 5},
		"with pauses": {func(rng *rand.Rand) func(int) time.Duration {
			return func(i int) time.Duration {
				if i%5000 == 0 {
					return time.Duration(rng.IntN(100)) * time.Second
				}
				return time.Millisecond
			}
		}, 11},
		"faster and faster": {func(*rand.Rand) func(int) time.Duration {
			return func(i int) time.Duration { return time.Duration(1e9 / (1 + i)) }
		}, 12},
		"in two bursts": {func(*rand.Rand) func(int) time.Duration {
			return func(i int) time.Duration { return time.Duration(i/50_000*(1-min(i%50_000, 1))) * time.Hour }
		}, 15},
	} {
		rng := rand.New(rand.NewPCG(seed, 0))
		all := arrivals(rng, 100_000, c.pause(rng))
		peeks, seeks := 0, 200
		for range seeks {
			first := rng.IntN(len(all))
			at := all[first].EnqueuedTime
			for first > 0 && !all[first-1].EnqueuedTime.Before(at) {
				first--
			}
			points := sequenceIndex{pointOf(all[0])}
			for range rng.IntN(6) {
				points.add(pointOf(all[rng.IntN(len(all))]))
			}
			s := newSeeker(points, at)
			for found := false; !found; {
				from := s.guess()
				if from <= s.lo.Number || from >= s.hi.Number || s.guesses > 80 {
					t.Fatalf("%s: guess %d is %d between %v and %v, OVERDUE_SEED=%d", name, s.guesses, from, s.lo, s.hi, seed)
				}
				i := sort.Search(len(all), func(i int) bool { return all[i].SequenceNumber >= from })
				if found = s.found(from, all[i:min(i+PageSize, len(all))]); found && (i > first || first-i > PageSize) {
					t.Errorf("%s: found message %d, want up to %d before message %d", name, i, PageSize, first)
				}
			}
			peeks += s.guesses
		}
		if peeks > c.most*seeks {
			t.Errorf("%s: %d peeks for %d seeks, want at most %d for each", name, peeks, seeks, c.most)
		}
	}
}
