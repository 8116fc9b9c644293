// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"sync"
	"time"

	"overdue/internal/lag"
)

// timerInterval is the interval between the timers of a timerWatch.
const timerInterval = 5 * time.Millisecond

// A timerWatch measures how late timers are in this mostly idle process. No program on this machine
// can be more punctual.
type timerWatch struct {
	stop chan struct{}
	all  sync.WaitGroup
	late []time.Duration // the goroutine's own until it has ended
}

func watchTimers() *timerWatch {
	n := &timerWatch{stop: make(chan struct{})}
	n.all.Go(func() {
		for {
			due := time.Now().Add(timerInterval)
			select {
			case <-time.After(timerInterval):
				n.late = append(n.late, max(0, time.Since(due)))
			case <-n.stop:
				return
			}
		}
	})
	return n
}

// end stops the watch and returns how late the timers were. Call it once.
func (n *timerWatch) end() lag.Milliseconds {
	close(n.stop)
	n.all.Wait()
	return lag.Of(n.late)
}
