// SPDX-License-Identifier: Apache-2.0

package plural

import "testing"

func TestOnlyOneIsSingular(t *testing.T) {
	for n, want := range map[int]string{0: "0 companions are due", 1: "1 companion is due", 2: "2 companions are due", 21: "21 companions are due"} {
		if got := Of(n, "companion is due", "companions are due"); got != want {
			t.Errorf("Of(%d) = %q, want %q", n, got, want)
		}
	}
}
