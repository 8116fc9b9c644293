// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"runtime"
	"testing"

	"overdue/internal/config"
)

func TestAMonitorUsesOneMoreThreadThanThereAreProcessors(t *testing.T) {
	before, all := runtime.GOMAXPROCS(0), runtime.NumCPU()
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for name, c := range map[string]struct {
		role     config.Role
		variable string
		limit    int
		want     int
	}{
		"monitor":             {config.RoleMonitor, "", all, all + 1},
		"all in one":          {config.RoleRun, "", all, all + 1},
		"proxy":               {config.RoleProxy, "", all, all},
		"limit of containers": {config.RoleMonitor, "", all + 2, all + 2},
		"variable":            {config.RoleMonitor, "7", all, all},
	} {
		t.Setenv("GOMAXPROCS", c.variable)
		if c.variable == "" {
			if err := os.Unsetenv("GOMAXPROCS"); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GOMAXPROCS(c.limit)
		useProcessors(c.role)
		if got := runtime.GOMAXPROCS(0); got != c.want {
			t.Errorf("%s: %d threads, want %d of %d processors", name, got, c.want, all)
		}
	}
}
