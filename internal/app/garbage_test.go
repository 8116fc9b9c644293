// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

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
