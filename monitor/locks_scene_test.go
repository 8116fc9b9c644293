// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/racetest"
)

func shortMonitorLock(_ *scene, c *broker.Config) { c.Queues[2].LockDuration = 5 * time.Second }

// A message that a consumer holds keeps its companion in hand for longer than the lock of the
// companion lasts.
func TestACompanionInHandKeepsItsLock(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(time.Second))
		s.receive(workQueue) // for a minute
		time.Sleep(2 * time.Second)
		before := s.Waiting(monitorQueue)
		time.Sleep(30 * time.Second)
		after := s.Waiting(monitorQueue)
		if len(before) != 1 || len(after) != 1 || after[0].SequenceNumber != before[0].SequenceNumber || after[0].DeliveryCount != 0 {
			s.Fatalf("before: %+v\nafter 30 s: %+v\nwant the same companion, whose lock never lapsed", before, after)
		}
		time.Sleep(35 * time.Second)
		notifiedOnceEach(s, 1)
	}, shortMonitorLock)
}

// Without a connection no lock is renewed. The companion comes back while its event is still on its
// way to the sink, which must not get it a second time.
func TestACompanionWhoseLockIsLostIsNotNotifiedAgain(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.Hook.Delay(4500 * time.Millisecond)
		s.send(workQueue, "m", ttl(time.Second))
		time.Sleep(1500 * time.Millisecond)
		s.Namespace.Net.Stall(pipenet.Both)
		time.Sleep(2 * time.Second)
		if c := s.Queue(monitorQueue).Counts(); c.Active != 1 {
			s.Fatalf("the monitor queue holds %+v, want the companion of the event", c)
		}
		s.Namespace.Net.Cut()
		s.Namespace.Net.Resume(pipenet.Both)
		time.Sleep(30 * time.Second)
		notifiedOnceEach(s, 1)
	}, func(_ *scene, c *broker.Config) { c.Queues[2].LockDuration = time.Second })
}

// A burst to a sink that takes long for each event: most of them wait on the monitor queue, and
// each is notified once.
func TestASlowSinkGetsEachEventOfABurstOnce(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	for _, takes := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 20 * time.Second} {
		t.Run(fmt.Sprint(takes), func(t *testing.T) {
			play(t, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				s.Hook.Delay(takes)
				n := min(4000, 64*int(10*time.Minute/takes))
				s.sendBatch(workQueue, n, 3*time.Second)
				time.Sleep(10 * time.Second)
				if lags := s.Lags(workQueue); len(lags) != n || lags[n-1] > time.Second {
					s.Errorf("%d dead letters, the latest %v late, want %d and a second at most", len(lags), lags[max(len(lags)-1, 0)], n)
				}
				time.Sleep(time.Duration(n) * takes / 64 * 2)
				notifiedOnceEach(s, n)
			}, tenSecondLock)
		})
	}
}

// A monitor that dies costs no more than the locks of its companions.
func TestAMonitorThatIsKilledCostsTenSeconds(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(time.Second))
		r, m := s.receive(workQueue)
		time.Sleep(20 * time.Second) // its lock was renewed
		s.Must(s.monitorLinks.Close())
		s.startMonitor()
		s.Must(r.AbandonMessage(s.Context(), m, nil))
		began := time.Now()
		for len(s.Hook.Events()) == 0 && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > 11*time.Second {
			s.Errorf("the event came %v after the monitor died, want ten seconds and a check", took)
		}
	}, tenSecondLock)
}

func tenSecondLock(_ *scene, c *broker.Config) { c.Queues[2].LockDuration = 10 * time.Second }
