// SPDX-License-Identifier: Apache-2.0

package store

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

// crashSeeds is how many seeds have their turn in each run.
var crashSeeds = flag.Uint64("crash-seeds", 200, "for how many seeds TestCrashLeavesABeginningOfTheHistory loses power")

// TestCrashLeavesABeginningOfTheHistory runs a broker on a disk that loses power at any byte, and
// then the next one at any byte of what that writes. Blocks that were not synced survive at random.
// The disk may be full now and then, or fail for good. Each broker has to begin with what its
// clients had heard of. Of each operation that they had not heard of there is all or nothing, and
// with it all that came before.
func TestCrashLeavesABeginningOfTheHistory(t *testing.T) {
	first, seeds := uint64(0), *crashSeeds
	if testseed.Chosen() {
		first = testseed.Of(t)
	}
	if racetest.Enabled {
		seeds /= 4 // goroutines meet in the same ways
	}
	for seed := first; seed-first < seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := &scene{
				t:       t,
				r:       rand.New(rand.NewPCG(seed, 41)),
				base:    time.Now(),
				numbers: map[string]int{},
			}
			d, worlds := newDisk(), []*world{newWorld()}
			openOn(t, d).Close() // the crash of a directory that is yet to be made has a test of its own
			for range 3 {
				d, worlds = s.live(d, worlds)
			}
			s.begin(d, worlds).end()
		})
	}
}

func TestCrashOfADirectoryThatIsBeingMade(t *testing.T) {
	for budget := 0; ; budget += 3 { // a third of the bytes, in all places
		d := newDisk()
		var after *disk
		d.lose = func() { after = d.crashed(rand.New(rand.NewPCG(uint64(budget), 2)), 50) }
		d.budget = budget
		if err := openOn(t, d).Close(); err != nil {
			t.Fatal(err)
		}
		if after == nil {
			return // all bytes of it had their turn
		}
		s := openOn(t, after)
		s.Queue(1).Append(added(1, whole()))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
