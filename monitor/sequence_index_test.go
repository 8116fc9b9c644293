// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"math/rand/v2"
	"testing"
	"time"

	"overdue/internal/testing/testseed"
)

func TestLandmarksStayInOrderAndBounded(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	var l sequenceIndex
	for range 5000 {
		n := rng.Int64N(1_000_000)
		l.add(indexPoint{n, noon.Add(time.Duration(n) * time.Millisecond)})
	}
	if len(l) > maxIndexPoints {
		t.Errorf("%d landmarks, want at most %d", len(l), maxIndexPoints)
	}
	for i := 1; i < len(l); i++ {
		if l[i-1].number >= l[i].number {
			t.Fatalf("landmark %d has number %d after %d", i, l[i].number, l[i-1].number)
		}
	}
	at := noon.Add(500_000 * time.Millisecond)
	before, after, hasBefore, hasAfter := l.around(at)
	if !hasBefore || !hasAfter || !before.enqueued.Before(at) || after.enqueued.Before(at) {
		t.Errorf("around = %v, %v, want the neighbours of %v", before, after, at)
	}
}

func TestGuessLiesStrictlyBetween(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 10_000 {
		lo := indexPoint{rng.Int64N(1 << 60), noon.Add(time.Duration(rng.Int64N(1e12)))}
		hi := indexPoint{lo.number + 2 + rng.Int64N(1<<60), noon.Add(time.Duration(rng.Int64N(1e12)))}
		if g := between(lo, hi, noon.Add(time.Duration(rng.Int64N(1e12)))); g <= lo.number || g >= hi.number {
			t.Fatalf("guess %d between %d and %d", g, lo.number, hi.number)
		}
	}
}
