// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"overdue/internal/config"
	"overdue/internal/lifecycle"
)

// HeapHeadroom is how much garbage may gather, in bytes, beyond what Go lets gather anyway, which
// is as much again as is in use. A busy sidecar has some 8 MB in use and fills as much again twenty
// times a second; each collection wakes every processor. It is memory that counts as in use and is
// never touched, so that none stands behind it. Unlike a higher GOGC it adds the same to a small
// heap and to that of a broker in which a million messages wait. test/bench/README.md has what it
// is worth.
const HeapHeadroom = 24 << 20

// useProcessors has Go run one goroutine more at a time than there are processors, where a monitor
// runs. Otherwise a nudge that is due waits for up to 10 ms while checks, notifications and the
// garbage collector have all processors, and longer where other processes want them too. The
// system runs a thread that has slept before those.
//
// It leaves a limit of the container alone, which an additional thread would only use up sooner,
// and the variable GOMAXPROCS.
func useProcessors(r config.Role) {
	n := runtime.GOMAXPROCS(0)
	if _, chosen := os.LookupEnv("GOMAXPROCS"); r.Monitor && !chosen && n == runtime.NumCPU() {
		runtime.GOMAXPROCS(n + 1)
	}
}

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
