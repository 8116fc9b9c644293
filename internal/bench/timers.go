// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"sync"
	"time"

	"overdue/internal/lag"
)

// timerInterval is how far apart the timers of a timerWatch are.
const timerInterval = 5 * time.Millisecond

// A timerWatch measures how late timers are in this process, which does little else meanwhile.
// Nothing on this machine can be more punctual.
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

// end is how late they were. It is called once.
func (n *timerWatch) end() lag.Milliseconds {
	close(n.stop)
	n.all.Wait()
	return lag.Of(n.late)
}
