// SPDX-License-Identifier: Apache-2.0

package search

import (
	"math/rand/v2"
	"testing"
	"time"

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

func TestGuessLiesStrictlyBetween(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 10_000 {
		lo := IndexPoint{Number: rng.Int64N(1 << 60), Enqueued: noon.Add(time.Duration(rng.Int64N(1e12)))}
		hi := IndexPoint{Number: lo.Number + 2 + rng.Int64N(1<<60), Enqueued: noon.Add(time.Duration(rng.Int64N(1e12)))}
		if g := Between(lo, hi, noon.Add(time.Duration(rng.Int64N(1e12)))); g <= lo.Number || g >= hi.Number {
			t.Fatalf("guess %d between %d and %d", g, lo.Number, hi.Number)
		}
	}
}
