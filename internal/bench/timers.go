// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"time"

	"overdue/internal/lag"
)

// timerInterval is the interval between the timers of watchTimers.
const timerInterval = 5 * time.Millisecond

// watchTimers measures how late timers are in this mostly idle process, until end is called once.
// No program on this machine can be more punctual.
func watchTimers() (end func() lag.Milliseconds) {
	stop, lateness := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var late []time.Duration
		for {
			due := time.Now().Add(timerInterval)
			select {
			case <-time.After(timerInterval):
				late = append(late, max(0, time.Since(due)))
			case <-stop:
				lateness <- late
				return
			}
		}
	}()
	return func() lag.Milliseconds {
		close(stop)
		return lag.Of(<-lateness)
	}
}
