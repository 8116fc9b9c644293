// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/testseed"
	"overdue/scheduler"
)

// Senders, outages of every kind and length, and restarts, in any order: every companion whose
// sender got an acknowledgement is on the monitor queue in the end.
func TestJournaledCompanionsReachTheMonitorQueue(t *testing.T) {
	seed := testseed.Of(t)
	kinds := []string{"the network is cut", "the queue is full", "the namespace throttles", "the queue is deleted"}
	for round := range 3 {
		directory := t.TempDir()
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
			ns.Net.Delay(pipenet.Both, time.Duration(rng.IntN(5))*time.Millisecond)
			j, stop := start(t, s, directory)
			safe, gone := map[string]bool{}, map[string]bool{}
			var mu sync.Mutex
			for part := range 6 {
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for sender := range 4 {
					mine := rand.New(rand.NewPCG(seed, uint64(round)<<32|uint64(part)<<8|uint64(sender)))
					wg.Go(func() {
						for i := 0; ctx.Err() == nil; i++ {
							id := fmt.Sprintf("%d-%d-%d", part, sender, i)
							due := time.Now().Add(time.Hour + time.Duration(mine.IntN(3600))*time.Second)
							if err := j.Begin(one(id, due))(t.Context()); err == nil {
								mu.Lock()
								safe[id] = true
								mu.Unlock()
							}
							time.Sleep(time.Duration(mine.IntN(500)) * time.Millisecond)
						}
					})
				}
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				kind := kinds[rng.IntN(len(kinds))]
				if kind == "the queue is deleted" { // and what was on it
					synctest.Wait() // nothing else comes in this instant
					mu.Lock()
					for _, id := range ids(t, ns) {
						gone[id] = true
					}
					mu.Unlock()
				}
				end := outages[kind](t, ns)
				time.Sleep(time.Duration(rng.IntN(20_000)) * time.Millisecond)
				end()
				if rng.IntN(2) == 0 {
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				}
				cancel()
				wg.Wait()
				if rng.IntN(2) == 0 {
					stop()
					j, stop = start(t, s, directory)
				}
			}
			time.Sleep(time.Minute)
			if st := j.Status(); st.Companions != 0 || st.Down != nil {
				t.Errorf("status %+v a minute after the last outage, want an empty journal", st)
			}
			seen := map[string]bool{}
			for _, id := range ids(t, ns) {
				seen[id] = true
			}
			for id := range safe {
				if !seen[id] && !gone[id] {
					t.Errorf("round %d: %s was safe and is not on the monitor queue", round, id)
				}
			}
			if len(safe) < 50 {
				t.Errorf("%d companions were safe, want more for this test to mean something", len(safe))
			}
		})
	}
}
