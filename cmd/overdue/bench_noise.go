// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"

	"overdue/internal/lag"
)

// benchTimerEvery is how far apart the timers of a benchNoise are.
const benchTimerEvery = 5 * time.Millisecond

// A benchNoise sees how late timers are in this process, which does little else meanwhile: nothing on this machine can be
// expected to be more punctual.
type benchNoise struct {
	stop chan struct{}
	all  sync.WaitGroup
	late []time.Duration // the goroutine's own until it has ended
}

func newBenchNoise() *benchNoise {
	n := &benchNoise{stop: make(chan struct{})}
	n.all.Go(func() {
		for {
			due := time.Now().Add(benchTimerEvery)
			select {
			case <-time.After(benchTimerEvery):
				n.late = append(n.late, max(0, time.Since(due)))
			case <-n.stop:
				return
			}
		}
	})
	return n
}

// end is how late they were. It is called once.
func (n *benchNoise) end() lag.Milliseconds {
	close(n.stop)
	n.all.Wait()
	return lag.Of(n.late)
}
