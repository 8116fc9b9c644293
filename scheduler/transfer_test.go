// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
)

// For any fault on the way, the companion is on the monitor queue when Schedule returns.
func TestACompanionIsWrittenAgainAfterATransientError(t *testing.T) {
	for name, hurt := range map[string]func(*brokertest.Namespace){
		"cut": func(ns *brokertest.Namespace) { ns.Net.Cut() },
		"throttled": func(ns *brokertest.Namespace) {
			ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Error: broker.ServerBusy(), Times: 3})
		},
		"detached": func(ns *brokertest.Namespace) {
			ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Detach: true, Times: 2})
		},
		"unanswered": func(ns *brokertest.Namespace) {
			ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Silent: true, Times: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
				if err := s.Schedule(t.Context(), one("first", time.Now().Add(time.Hour))); err != nil {
					t.Fatal(err)
				}
				hurt(ns)
				synctest.Wait()
				if err := s.Schedule(t.Context(), one("second", time.Now().Add(time.Hour))); err != nil {
					t.Errorf("Schedule = %v, want it written again", err)
				}
				has := map[string]bool{}
				for _, id := range ids(t, ns) {
					has[id] = true
				}
				if !has["first"] || !has["second"] {
					t.Errorf("the monitor queue has companions for %v, want first and second", has)
				}
			})
		})
	}
}

// Transfers in flight together make a companion wait for a moment, not for a round trip, before it
// leaves. 16 senders, each with one message at a time, as those of `overdue bench send`.
func TestACompanionHardlyWaitsForOthers(t *testing.T) {
	for _, trip := range []time.Duration{4 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(trip.String(), func(t *testing.T) {
			setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
				if err := s.Schedule(t.Context(), one("first", time.Now().Add(time.Hour))); err != nil {
					t.Fatal(err)
				}
				ns.Net.Delay(pipenet.Both, trip/2)
				defer ns.Net.Delay(pipenet.Both, 0)
				const senders, rounds = 16, 50
				var total atomic.Int64
				var all sync.WaitGroup
				for i := range senders {
					all.Go(func() {
						time.Sleep(time.Duration(i) * trip / senders) // they do not go in step
						for n := range rounds {
							began := time.Now()
							if err := s.Schedule(t.Context(), one(fmt.Sprint(i, "-", n), time.Now().Add(time.Hour))); err != nil {
								t.Error(err)
							}
							total.Add(int64(time.Since(began)))
							time.Sleep(time.Duration(i) * trip / (7 * senders)) // nor do they get there
						}
					})
				}
				all.Wait()
				mean := time.Duration(total.Load() / (senders * rounds))
				waited := float64(mean)/float64(trip) - 1
				t.Logf("a companion takes %v on average with a round trip of %v: it waits for %.2f round trips", mean, trip, waited)
				if waited > 0.5 {
					t.Errorf("a companion waits for %.2f round trips on average, want at most 0.5", waited)
				}
			})
		})
	}
}

// A monitor queue without an answer holds up to so many transfers; what else comes waits, and
// leaves together.
func TestTransfersInFlightAreBounded(t *testing.T) {
	var transfers atomic.Int64
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		if err := s.Schedule(t.Context(), one("first", time.Now().Add(time.Hour))); err != nil {
			t.Fatal(err)
		}
		transfers.Store(0)
		ns.Net.Delay(pipenet.Both, time.Second)
		defer ns.Net.Delay(pipenet.Both, 0)
		const n = 300
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if err := s.Schedule(t.Context(), one(fmt.Sprint(i), time.Now().Add(time.Hour+time.Duration(i)*time.Second))); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(2 * time.Millisecond)
		}
		all.Wait()
		if got := transfers.Load(); got < 5 || got > 6 {
			t.Errorf("%d companions took %d transfers, want four at once and then one with the others", n, got)
		}
	}, func(_ *broker.Config, c *scheduler.Config) {
		c.Written = func(int, error) { transfers.Add(1) }
	})
}

// The end does not wait for a connection that does not come about.
func TestCloseEndsTransfersThatDoNotEnd(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		if err := s.Schedule(t.Context(), one("first", time.Now().Add(time.Hour))); err != nil {
			t.Fatal(err)
		}
		ns.Net.Stall(pipenet.Both)
		defer ns.Net.Resume(pipenet.Both)
		result := make(chan error, 1)
		go func() { result <- s.Schedule(context.Background(), one("second", time.Now().Add(time.Hour))) }()
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := s.Close(ctx); err == nil {
			t.Error("Close with a companion in flight = nil, want an error")
		}
		if err := <-result; err == nil {
			t.Error("Schedule = nil though nothing was accepted")
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %v, want the time that Close has and a moment", took)
		}
	})
}
