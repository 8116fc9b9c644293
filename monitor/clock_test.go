// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
)

// The broker's clock and the sidecar's differ by ten minutes. Deadlines count on the broker's, and
// a measured clock keeps them exactly.
func TestSkewedClocks(t *testing.T) {
	for _, offset := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		for _, measured := range []bool{true, false} {
			t.Run(fmt.Sprintf("broker %v, measured %v", offset, measured), func(t *testing.T) {
				play(t, func(s *scene) {
					if measured {
						s.MeasureClock()
					}
					s.startMonitor()
					const n = 50
					for i := range n {
						s.send(workQueue, fmt.Sprint("m-", i), ttl(time.Duration(2000+40*i)*time.Millisecond))
					}
					time.Sleep(10 * time.Second)
					bound := 250 * time.Millisecond
					if !measured {
						// A companion due by a clock that is wrong becomes due as much too late.
						time.Sleep(11 * time.Minute)
						bound = 10*time.Minute + time.Second
					}
					lags := s.Lags(workQueue)
					if len(lags) != n || lags[n-1] > bound {
						s.Errorf("%d dead letters, the latest %v late, want %d and %v at most", len(lags), lags[max(len(lags)-1, 0)], n, bound)
					}
					notifiedOnceEach(s, n)
				}, func(_ *scene, c *broker.Config) { c.ClockOffset = offset })
			})
		}
	}
}

// The monitor's clock gains eight seconds on the broker's in a day without companions. One that
// comes early then must not find its message overdue.
func TestMonitorWhoseClockRunsFast(t *testing.T) {
	play(t, func(s *scene) {
		s.stamp = false // or the broker would not let it happen
		s.startMonitor()
		s.send(workQueue, "before", "", "Overdue-Within", `"1s"`)
		time.Sleep(24 * time.Hour)
		s.Namespace.Broker.SetClockOffset(-8 * time.Second)
		s.send(workQueue, "m", "", "Overdue-Within", `"6s"`) // its companion comes late
		err := s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, Due: s.Namespace.Broker.Now(), References: []scheduler.Reference{{
			MessageID: "m", Sent: time.Now(), Within: 6 * time.Second, Deadline: time.Now(), Stated: "within",
		}}})
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Minute)
		dead := s.Dead(workQueue)
		if len(dead) != 2 {
			s.Fatalf("%d dead letters, want 2", len(dead))
		}
		if lag := dead[1].DeadLetteredTime.Sub(dead[1].EnqueuedTime.Add(6 * time.Second)); lag < 0 || lag > time.Second {
			s.Errorf("dead-lettered %v after its deadline, want 0 to 1s", lag)
		}
	})
}

// The clock of the broker is set back while the monitor goes by its stamps. The monitor expires
// these messages by itself, and must not expire any of them early.
func TestBrokerWhoseClockIsSetBack(t *testing.T) {
	for _, c := range []struct {
		name             string
		sessions, defers bool
	}{{name: "queue"}, {name: "sessions", sessions: true}, {name: "deferred", defers: true}} {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(s *scene) {
				const within = 6 * time.Second
				s.stamp = false
				s.startMonitor()
				s.send(workQueue, "before", `"SessionId":"s"`, "Overdue-Within", `"1s"`)
				time.Sleep(10 * time.Second)
				s.Namespace.Broker.SetClockOffset(-time.Minute)
				s.MeasureClock()
				s.send(workQueue, "m", `"SessionId":"s"`, "Overdue-Within", fmt.Sprintf("%q", within))
				if c.defers {
					s.defers(workQueue)
				}
				time.Sleep(time.Minute)
				dead := s.Dead(workQueue)
				if len(dead) != 2 {
					s.Fatalf("%d dead letters, want 2", len(dead))
				}
				if lag := dead[1].DeadLetteredTime.Sub(dead[1].EnqueuedTime.Add(within)); lag < 0 || lag > time.Second {
					s.Errorf("dead-lettered %v after its deadline, want 0 to 1s", lag)
				}
				notifiedOnceEach(s, 2)
			}, func(_ *scene, b *broker.Config) { b.Queues[0].RequiresSession = c.sessions })
		})
	}
}

// An absolute deadline names an instant of the true time. A sidecar whose clock is wrong, and
// knows it, still keeps it.
func TestAbsoluteDeadlineOnASkewedClock(t *testing.T) {
	const offset = 10 * time.Minute
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		due := time.Now().Add(offset + 5*time.Second)
		s.send(workQueue, "m", "", "Overdue-Deadline", fmt.Sprintf("%q", due.UTC().Format(time.RFC3339Nano)))
		time.Sleep(10 * time.Second)
		dead := s.Dead(workQueue)
		if len(dead) != 1 {
			s.Fatalf("%d dead letters, want 1", len(dead))
		}
		if lag := dead[0].DeadLetteredTime.Sub(due); lag < 0 || lag > 250*time.Millisecond {
			s.Errorf("dead-lettered %v after the deadline, want 0 to 250ms", lag)
		}
		notifiedOnceEach(s, 1)
	}, func(_ *scene, c *broker.Config) { c.ClockOffset = offset })
}

// The broker's clock is ahead of what was measured. Until the next measurement, the old one must
// not show that a deadline is still to come. The next one counts, however sharp the last was.
func TestAClockThatIsAheadOfItsMeasurement(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		const n = 20
		send := func(when string) {
			for i := range n {
				s.send(workQueue, fmt.Sprint(when, "-", i), ttl(time.Duration(2000+40*i)*time.Millisecond))
			}
		}
		send("before")
		time.Sleep(time.Second)
		s.Namespace.Broker.SetClockOffset(10 * time.Minute)
		time.Sleep(time.Second)
		s.Namespace.Net.Delay(pipenet.ToListener, 20*time.Millisecond) // the next one is less sharp
		s.MeasureClock()
		s.Namespace.Net.Delay(pipenet.ToListener, 0)
		send("after")
		time.Sleep(30 * time.Second)
		if got := len(s.Lags(workQueue)); got != 2*n {
			s.Errorf("%d dead letters, want %d", got, 2*n)
		}
		notifiedOnceEach(s, 2*n)
	})
}
