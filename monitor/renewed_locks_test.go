// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/pipenet"
)

// A consumer works on a message far beyond its deadline and renews its lock all the while, for
// longer than a companion can be held. The outcome of the message is noticed at once.
func TestRenewedFarBeyondTheDeadline(t *testing.T) {
	for _, mode := range []struct {
		name     string
		stamp    bool
		complete bool
	}{{"abandon, native", true, false}, {"abandon, by hand", false, false}, {"complete, native", true, true}, {"complete, by hand", false, true}} {
		t.Run(mode.name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.stamp = mode.stamp
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "m", "", "Overdue-Within", `"2s"`)
				r, m := s.receive(workQueue)
				for range 10 {
					time.Sleep(20 * time.Second)
					if err := r.RenewMessageLock(s.Context(), m, nil); err != nil {
						s.Fatal(err)
					}
				}
				if mode.complete {
					if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
						s.Fatal(err)
					}
					s.Settled(2 * time.Second)
					if dead, notified := len(s.Dead(workQueue)), len(s.Hook.Events()); dead != 0 || notified != 0 {
						s.Errorf("%d dead letters, %d events, want none: it was completed", dead, notified)
					}
					return
				}
				if err := r.AbandonMessage(s.Context(), m, nil); err != nil {
					s.Fatal(err)
				}
				if err := r.Close(s.Context()); err != nil {
					s.Fatal(err)
				}
				time.Sleep(1500 * time.Millisecond)
				if dead := len(s.Dead(workQueue)); dead != 1 {
					s.Errorf("%d dead letters after it was abandoned, want 1", dead)
				}
				notifiedOnceEach(s, 1)
			})
		})
	}
}

// Nothing of the broker can be reached while the deadlines pass, for ten minutes.
func TestBrokerThatIsAwayForTenMinutes(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		const n = 50
		for i := range n {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(time.Duration(2000+40*i)*time.Millisecond))
		}
		time.Sleep(3 * time.Second)
		s.Namespace.Net.Refuse(true)
		s.Namespace.Net.Cut()
		time.Sleep(10 * time.Minute)
		s.Namespace.Net.Refuse(false)
		time.Sleep(time.Minute)
		if got := len(s.Lags(workQueue)); got != n {
			s.Errorf("%d dead letters a minute after the broker is back, want %d", got, n)
		}
		notified := s.Hook.Subjects()
		if distinct := slices.Compact(notified); len(distinct) != n {
			s.Errorf("notified of %d messages, want %d", len(distinct), n)
		}
		s.Settled(2 * time.Minute)
	})
}

// Two monitors share the companions. Live messages stand between those that are overdue.
func TestTwoMonitors(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			play(t, func(s *scene) {
				s.stamp = stamp
				s.MeasureClock()
				s.startMonitor()
				s.startMonitor()
				const n = 100
				for i := range n {
					s.send(workQueue, fmt.Sprint("live-", i), ttl(time.Hour))
					s.send(workQueue, fmt.Sprint("m-", i), "", "Overdue-Within", fmt.Sprintf(`"%dms"`, 2000+30*i))
				}
				before := livingOf(s)
				time.Sleep(3 * time.Minute)
				if after := livingOf(s); !slices.EqualFunc(before, after, func(a, b living) bool {
					return a.ID == b.ID && a.Number == b.Number && a.DeliveryCount == b.DeliveryCount
				}) {
					s.Errorf("the live messages changed: %d before, %d after", len(before), len(after))
				}
				if dead := len(s.Dead(workQueue)); dead != n {
					s.Errorf("%d dead letters, want %d", dead, n)
				}
				if notified := s.Hook.Subjects(); len(notified) != n || len(slices.Compact(notified)) != n {
					s.Errorf("%d events, want one about each of %d messages", len(notified), n)
				}
			})
		})
	}
}

// The time-to-live is over before the send is, on a line that takes half a second each way.
func TestTimeToLiveShorterThanTheSend(t *testing.T) {
	for _, expiry := range []queue.Expiry{queue.Lazy, queue.LazyHead, queue.Eager} {
		t.Run(fmt.Sprint("expiry ", expiry), func(t *testing.T) {
			play(t, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				s.Namespace.Net.Delay(pipenet.Both, 500*time.Millisecond)
				lives := []time.Duration{time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond, time.Second}
				for i, life := range lives {
					s.send(workQueue, fmt.Sprint("m-", i), ttl(life))
				}
				time.Sleep(time.Minute)
				if got := len(s.Lags(workQueue)); got != len(lives) {
					s.Errorf("%d dead letters, want %d", got, len(lives))
				}
				notifiedOnceEach(s, len(lives))
			}, func(_ *scene, c *broker.Config) { c.Expiry = expiry })
		})
	}
}

// The acknowledgement of a send is lost, wherever its bytes are cut. The SDK sends again, and two
// messages may lie behind one companion: neither of them outlives its deadline.
func TestSendThatIsMadeTwice(t *testing.T) {
	twice := 0
	for cut := int64(0); cut < 80; cut += 4 {
		for _, stamp := range []bool{true, false} {
			t.Run(fmt.Sprintf("cut %d, stamp %v", cut, stamp), func(t *testing.T) {
				play(t, func(s *scene) {
					s.stamp = stamp
					s.MeasureClock()
					s.startMonitor()
					s.send(workQueue, "first", "", "Overdue-Within", `"1s"`) // opens the links
					time.Sleep(5 * time.Second)
					s.Namespace.Net.CutAfter(pipenet.ToDialer, cut)
					s.send(workQueue, "m", "", "Overdue-Within", `"5s"`)
					copies := len(s.Waiting(workQueue))
					if copies > 1 {
						twice++
					}
					time.Sleep(5 * time.Minute)
					if got := len(s.Waiting(workQueue)); got != 0 {
						s.Errorf("%d of %d messages wait, want none", got, copies)
					}
					if notified := s.Hook.Events(); len(notified) < 1+copies {
						s.Errorf("%d events, want at least one for each of %d messages", len(notified), 1+copies)
					}
				})
			})
		}
	}
	if twice == 0 {
		t.Error("no send was made twice, so nothing has been tested")
	}
}

// The shortest locks, on both queues: a companion in flight goes round quickly and is not lost.
func TestShortLocksOnTheMonitorQueue(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(2*time.Second))
		r, m := s.receive(workQueue)
		for range 15 {
			time.Sleep(20 * time.Second)
			if err := r.RenewMessageLock(s.Context(), m, nil); err != nil {
				s.Fatal(err)
			}
		}
		time.Sleep(time.Until(*m.LockedUntil) + 1500*time.Millisecond)
		notifiedOnceEach(s, 1)
		if got := s.Queue(monitorQueue).DeadLetterQueue().Counts().Active; got != 0 {
			s.Errorf("%d companions are dead letters, want none", got)
		}
	}, func(_ *scene, c *broker.Config) {
		c.Queues[2].LockDuration, c.Queues[2].MaxDeliveryCount = 5*time.Second, 10
	})
}
