// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"overdue/internal/lifecycle"
)

const (
	// A heap of which so many bytes are in use is large, as that of a broker with some hundred
	// thousand messages. It may have largeGarbage percent of that as garbage, and not as much again.
	largeHeap    = 384 << 20
	largeGarbage = 40
	usualGarbage = 100
	// garbageEvery is how often the heap is measured.
	garbageEvery = time.Second
)

// startGarbageBound bounds the garbage of a large heap, unless the operator does, by GOGC or
// GOMEMLIMIT.
func startGarbageBound(life *lifecycle.Lifecycle) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		life.Background("garbage bound", boundGarbage)
	}
}

// boundGarbage bounds the garbage of a large heap until ctx ends.
func boundGarbage(ctx context.Context) error {
	defer debug.SetGCPercent(usualGarbage)
	inUse := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for percent := usualGarbage; ; {
		metrics.Read(inUse)
		if now := garbagePercent(inUse[0].Value.Uint64()); now != percent {
			percent = now
			debug.SetGCPercent(percent)
		}
		select {
		case <-time.After(garbageEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// garbagePercent returns how much garbage a heap may have, in percent of the bytes in use.
func garbagePercent(inUse uint64) int {
	if inUse > largeHeap {
		return largeGarbage
	}
	return usualGarbage
}
