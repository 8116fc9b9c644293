// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"os"
	"testing"

	"overdue/internal/testing/testseed"
)

func TestMain(m *testing.M) {
	testseed.Rapid()
	os.Exit(m.Run())
}
