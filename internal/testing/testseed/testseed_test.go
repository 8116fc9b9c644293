// SPDX-License-Identifier: Apache-2.0

package testseed

import "testing"

func TestTheSeedIsTheSameUntilAskedOtherwise(t *testing.T) {
	first, _ := choose("", "TestA")
	if again, _ := choose("", "TestA"); again != first {
		t.Errorf("second seed of TestA = %d, want %d", again, first)
	}
	if other, _ := choose("", "TestB"); other == first {
		t.Errorf("TestB has the seed of TestA, %d", other)
	}
	a, _ := choose("random", "TestA")
	if b, _ := choose("random", "TestA"); a == b {
		t.Errorf("two random seeds are both %d", a)
	}
	if got, err := choose("18446744073709551615", "TestA"); got != 1<<64-1 || err != nil {
		t.Errorf("given seed = %d, %v, want %d", got, err, uint64(1<<64-1))
	}
	if _, err := choose("x", "TestA"); err == nil {
		t.Error("seed x is taken")
	}
}
