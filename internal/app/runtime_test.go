// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

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

// gcPercent is what is in force.
func gcPercent() int {
	now := debug.SetGCPercent(usualGarbage)
	debug.SetGCPercent(now)
	return now
}

func TestALargeHeapHasLessGarbage(t *testing.T) {
	before := debug.SetGCPercent(usualGarbage)
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		held := make([]byte, 2*largeHeap) // of which no page is touched
		runtime.GC()
		go func() { ended <- boundGarbage(ctx) }()
		synctest.Wait()
		if got := gcPercent(); got != largeGarbage {
			t.Errorf("large: %d %%, want %d", got, largeGarbage)
		}
		runtime.KeepAlive(held)
		runtime.GC()
		time.Sleep(garbageEvery)
		synctest.Wait()
		if got := gcPercent(); got != usualGarbage {
			t.Errorf("small again: %d %%, want %d", got, usualGarbage)
		}
		debug.SetGCPercent(largeGarbage)
		stop()
		if err := <-ended; err != nil || gcPercent() != usualGarbage {
			t.Errorf("ended with %v and %d %%, want %d", err, gcPercent(), usualGarbage)
		}
	})
}
