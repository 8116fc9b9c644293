// SPDX-License-Identifier: Apache-2.0

package search

import (
	"math"
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
	var l SequenceIndex
	for range 5000 {
		n := rng.Int64N(1_000_000)
		l.Add(IndexPoint{Number: n, Enqueued: noon.Add(time.Duration(n) * time.Millisecond)})
	}
	if len(l) > MaxIndexPoints {
		t.Errorf("%d points, want at most %d", len(l), MaxIndexPoints)
	}
	for i := 1; i < len(l); i++ {
		if l[i-1].Number >= l[i].Number {
			t.Fatalf("point %d has number %d after %d", i, l[i].Number, l[i-1].Number)
		}
	}
	at := noon.Add(500_000 * time.Millisecond)
	before, after, hasBefore, hasAfter := l.Around(at)
	if !hasBefore || !hasAfter || !before.Enqueued.Before(at) || after.Enqueued.Before(at) {
		t.Errorf("around = %v, %v, want the neighbours of %v", before, after, at)
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

// A seek ends right before the first message that was enqueued at that time, after few peeks where
// messages arrived evenly, and after a bounded number of them however they arrived.
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
		}, 14},
		"in two bursts": {func(*rand.Rand) func(int) time.Duration {
			return func(i int) time.Duration { return time.Duration(i/50_000*(1-min(i%50_000, 1))) * time.Hour }
		}, 16},
	} {
		rng := rand.New(rand.NewPCG(seed, 0))
		queue := arrivals(rng, 100_000, c.pause(rng))
		tries, seeks := 0, 200
		for range seeks {
			want := rng.IntN(len(queue))
			at := queue[want].EnqueuedTime
			for want > 0 && !queue[want-1].EnqueuedTime.Before(at) {
				want--
			}
			points := SequenceIndex{pointOf(queue[0]), pointOf(queue[firstPage-1])} // as the first page shows
			for range rng.IntN(6) {
				points.Add(pointOf(queue[rng.IntN(len(queue))]))
			}
			lo, hi, hasLo, hasHi := points.Around(at)
			if !hasLo {
				continue // the oldest message is as old already
			}
			if !hasHi {
				hi.Number = math.MaxInt64
			}
			s := seeker{lo: lo, hi: hi, ahead: points.ahead(at)}
			from, found := int64(0), false
			for !found && s.hi.Number-s.lo.Number > seekPrecision {
				if s.tries > 80 {
					t.Fatalf("%s: between %v and %v after 80 peeks, OVERDUE_SEED=%d", name, s.lo, s.hi, seed)
				}
				from = s.guess(at)
				if from <= s.lo.Number || from >= s.hi.Number {
					t.Fatalf("%s: guess %d between %v and %v", name, from, s.lo, s.hi)
				}
				i := sort.Search(len(queue), func(i int) bool { return queue[i].SequenceNumber >= from })
				found = s.found(from, queue[i:min(i+seekPrecision, len(queue))], at)
			}
			if tries += s.tries; !found {
				from = s.lo.Number + 1
			}
			first := sort.Search(len(queue), func(i int) bool { return queue[i].SequenceNumber >= from })
			if first > want || want-first > seekPrecision {
				t.Errorf("%s: found %d, the place of message %d, want up to %d before message %d", name, from, first, seekPrecision, want)
			}
		}
		if tries > c.most*seeks {
			t.Errorf("%s: %d peeks for %d seeks, want at most %d for each", name, tries, seeks, c.most)
		}
	}
}
