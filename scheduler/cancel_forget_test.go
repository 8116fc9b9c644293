// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"
	"time"
)

// What is cancelled is forgotten: nothing is known any more of the messages that it waited for.
func TestCancelledCompanionsAreForgotten(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		const n = 20
		for i := range n {
			c.send(fmt.Sprint("m-", i), time.Hour)()
		}
		time.Sleep(time.Minute)
		if got, errs := c.outcome(); got != n || len(errs) != 0 {
			t.Fatalf("%d companions are cancelled, %v, want %d", got, errs, n)
		}
		for i := range n {
			if _, known := c.s.Expects("orders", fmt.Append(nil, "m-", i), nil); known {
				t.Errorf("m-%d is still expected, though its companion is cancelled", i)
			}
		}
	})
}
