// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/bubble"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
)

const monitorQueue = bubble.MonitorQueue

var setup, companions, ids, one = bubble.WithScheduler, bubble.OnMonitorQueue, bubble.MessageIDs, bubble.CompanionOf

func TestSchedulerNeedsToKnowWhereItWrites(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, _ *scheduler.Scheduler) {
		for name, cfg := range map[string]scheduler.Config{
			"no monitor queue":   {Links: ns.Links(t)},
			"no such companions": {Links: ns.Links(t), MonitorQueue: monitorQueue, Companions: "some"},
			"no links":           {MonitorQueue: monitorQueue},
		} {
			if s, err := scheduler.New(cfg); err == nil || s != nil {
				t.Errorf("%s: New = %v, %v, want an error", name, s, err)
			}
		}
	})
}

func TestCompanionIsHeldBackByTheBrokerUntilItIsDue(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		deadline := time.Now().Add(30 * time.Second)
		if err := s.Schedule(t.Context(), one("m", deadline)); err != nil {
			t.Fatal(err)
		}
		got := companions(t, ns)
		if len(got) != 1 || got[0].State != queue.Scheduled {
			t.Fatalf("the monitor queue holds %+v, want one scheduled companion", got)
		}
		if due := got[0].ScheduledEnqueueTime; !due.Before(deadline) || deadline.Sub(due) > 300*time.Millisecond {
			t.Errorf("it is due %v before the deadline, want at most a slot of 100 ms and its lead", deadline.Sub(due))
		}
		time.Sleep(31 * time.Second)
		if got := companions(t, ns); got[0].State != queue.Active {
			t.Errorf("its state after the deadline is %v, want active", got[0].State)
		}
	})
}

// Companions that come while a transfer is in flight leave together with the next one.
func TestSendsShareTransfers(t *testing.T) {
	var transfers, written atomic.Int64
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		if err := s.Schedule(t.Context(), one("first", time.Now().Add(time.Minute))); err != nil {
			t.Fatal(err)
		}
		ns.Net.Delay(pipenet.Both, 5*time.Millisecond)
		transfers.Store(0)
		written.Store(0)
		const n = 1000
		began := time.Now()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := s.Schedule(t.Context(), one(fmt.Sprint("m-", i), time.Now().Add(time.Duration(i)*time.Second))); err != nil {
					t.Errorf("Schedule: %v", err)
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		if got := transfers.Load(); got > 8 {
			t.Errorf("%d companions took %d transfers, want eight at most", n, got)
		}
		if written.Load() != n {
			t.Errorf("%d companions were written, want %d", written.Load(), n)
		}
		if took > 100*time.Millisecond {
			t.Errorf("they took %v at a round trip of 10ms, want a few round trips", took)
		}
		if got := len(companions(t, ns)); got != n+1 {
			t.Errorf("the monitor queue holds %d, want %d", got, n+1)
		}
		ns.Net.Delay(pipenet.Both, 0)
	}, func(_ *broker.Config, c *scheduler.Config) {
		c.Written = func(n int, err error) {
			transfers.Add(1)
			if err == nil {
				written.Add(int64(n))
			}
		}
	})
}

func TestACallerGetsTheErrorOfItsCompanion(t *testing.T) {
	setup(t, func(t *testing.T, _ *brokertest.Namespace, s *scheduler.Scheduler) {
		if err := s.Schedule(t.Context(), one("m", time.Now())); err == nil {
			t.Error("Schedule on a monitor queue that does not exist = nil, want an error")
		}
	}, func(b *broker.Config, _ *scheduler.Config) { b.Queues = nil })
}

func TestCallerThatGivesUpDoesNotTakeTheOthersAlong(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		if err := s.Schedule(t.Context(), one("first", time.Now().Add(time.Minute))); err != nil {
			t.Fatal(err)
		}
		ns.Net.Delay(pipenet.Both, 50*time.Millisecond)
		hasty, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Schedule(hasty, one("hasty", time.Now().Add(time.Minute))); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the hasty caller got %v, want its own deadline", err)
			}
		})
		wg.Go(func() {
			if err := s.Schedule(t.Context(), one("patient", time.Now().Add(time.Minute))); err != nil {
				t.Errorf("the patient caller got %v, want nil", err)
			}
		})
		wg.Wait()
		ns.Net.Delay(pipenet.Both, 0)
	})
}

func TestCloseWaitsForWhatIsInFlight(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		ns.Net.Delay(pipenet.Both, 50*time.Millisecond)
		result := make(chan error, 1)
		go func() { result <- s.Schedule(t.Context(), one("m", time.Now().Add(time.Minute))) }()
		time.Sleep(10 * time.Millisecond)
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		if err := <-result; err != nil {
			t.Errorf("the companion in flight = %v, want it written", err)
		}
		if err := s.Schedule(t.Context(), one("late", time.Now())); !errors.Is(err, scheduler.ErrClosed) {
			t.Errorf("Schedule after Close = %v, want ErrClosed", err)
		}
		ns.Net.Delay(pipenet.Both, 0)
	})
}

func TestBrokersClockIsMeasured(t *testing.T) {
	for _, offset := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(offset.String(), func(t *testing.T) {
			setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
				if s.Now().Measured {
					t.Error("the clock is measured before MeasureClock")
				}
				ns.Net.Delay(pipenet.Both, 7*time.Millisecond)
				if err := s.MeasureClock(t.Context()); err != nil {
					t.Fatal(err)
				}
				ns.Net.Delay(pipenet.Both, 0)
				got := s.Now()
				if off := got.Time.Sub(ns.Broker.Now()).Abs(); !got.Measured || off > got.Uncertainty || got.Uncertainty > 20*time.Millisecond {
					t.Errorf("off by %v with an uncertainty of %v, want within it, and at most 20ms at a round trip of 14ms", off, got.Uncertainty)
				}
				if left := companions(t, ns); len(left) != 0 {
					t.Errorf("%d probes are left on the monitor queue, want none", len(left))
				}
			}, func(c *broker.Config, _ *scheduler.Config) { c.ClockOffset = offset })
		})
	}
}

// A command that sends one message ends while its clock is being measured.
func TestAMeasurementThatIsInterruptedLeavesNothingOnTheMonitorQueue(t *testing.T) {
	for _, after := range []time.Duration{0, 40 * time.Millisecond, 120 * time.Millisecond, 200 * time.Millisecond, 280 * time.Millisecond, 360 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
				if err := s.MeasureClock(t.Context()); err != nil { // which opens the links
					t.Fatal(err)
				}
				ns.Net.Delay(pipenet.Both, 40*time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				began := time.Now()
				err := s.MeasureClock(ctx)
				if took := time.Since(began); took > after+3*time.Second {
					t.Errorf("MeasureClock goes on for %v after the end of its context (%v)", took-after, err)
				}
				ns.Net.Delay(pipenet.Both, 0)
				synctest.Wait()
				if left := companions(t, ns); len(left) != 0 {
					t.Errorf("%d probes are left on the monitor queue, want none (%v)", len(left), err)
				}
			})
		})
	}
}

func TestClockStaysOursWhereItCannotBeMeasured(t *testing.T) {
	setup(t, func(t *testing.T, _ *brokertest.Namespace, s *scheduler.Scheduler) {
		if err := s.MeasureClock(t.Context()); err == nil {
			t.Error("MeasureClock without a monitor queue = nil, want an error")
		}
		if s.Now().Measured {
			t.Error("the clock is taken for measured after a failure")
		}
	}, func(b *broker.Config, _ *scheduler.Config) { b.Queues = nil })
}

// The broker ends such a connection with a condition that the SDK takes for the last word.
func TestCompanionsAreWrittenAgainAfterAStallBeforeTheFirstToken(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Delay: 25 * time.Second, Times: 1})
		if err := s.Schedule(t.Context(), one("m", time.Now().Add(time.Hour))); err != nil {
			t.Errorf("a companion that met the stall = %v, want nil", err)
		}
		if err := s.Schedule(t.Context(), one("n", time.Now().Add(time.Hour))); err != nil {
			t.Errorf("the next companion = %v, want nil", err)
		}
		if got := ids(t, ns); len(got) != 2 {
			t.Errorf("the monitor queue has companions for %q, want m and n", got)
		}
	}, func(c *broker.Config, _ *scheduler.Config) { c.Keys = []broker.AuthorizationRule{brokertest.Key()} })
}
