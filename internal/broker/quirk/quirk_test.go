// SPDX-License-Identifier: Apache-2.0

package quirk

import (
	"slices"
	"testing"
)

func TestEachQuirkHasABitAndANameOfItsOwn(t *testing.T) {
	var all Set
	for _, q := range All {
		if q.Set == 0 || all&q.Set != 0 {
			t.Errorf("%s: the bit %b is none of its own", q.Name, q.Set)
		}
		all |= q.Set
		if s := Of(q.Name, "nothing"); s != q.Set {
			t.Errorf("Of(%s) = %b, want %b", q.Name, s, q.Set)
		}
	}
	if got := all.Names(); !slices.Equal(got, Names()) {
		t.Errorf("the set of all has the names %v, want %v", got, Names())
	}
}
