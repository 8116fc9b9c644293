// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker/quirk"
	"overdue/internal/testing/testseed"
)

// With several quirks at once a trial may be unable to tell, and no trial is wrong. It neither
// overlooks the quirk of its assumption, nor blames another assumption.
func TestRandomSetsOfQuirks(t *testing.T) {
	sets := 12
	if testseed.Chosen() {
		sets = 200
	}
	rng := rand.New(rand.NewPCG(testseed.Of(t), 0))
	for range sets {
		var quirks quirk.Set
		for range 2 + rng.IntN(5) {
			quirks |= quirk.All[rng.IntN(len(quirk.All))].Set
		}
		t.Run(fmt.Sprint(quirks), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				for i, r := range try(t, quirks).Results {
					has := Assumptions[i].Quirk != 0 && quirks.Has(Assumptions[i].Quirk)
					if has && r.Verdict == AsAssumed || !has && r.Verdict == Otherwise {
						t.Errorf("%s: %s (%s)", r.ID, r.Verdict, r.Detail)
					}
				}
				if took := time.Since(began); took > timeLimit {
					t.Errorf("the trials took %v, want %v at most", took, timeLimit)
				}
			})
		})
	}
}
