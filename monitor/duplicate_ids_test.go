// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/pipenet"
)

// Two messages have one id and one deadline, and one of them is set aside: the dead letter of
// the other is not its own.
func TestDeferredMessageWhoseIDRepeats(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, pause := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("the first %v, pause %v", first, pause), func(t *testing.T) {
				inModes(t, plain, func(s *scene) {
					s.MeasureClock()
					s.startMonitor()
					s.send(workQueue, "missed", ttl(time.Second)) // so that from now on the nudge comes first
					time.Sleep(3 * time.Second)
					end := time.Now().Add(5 * time.Second)
					at := fmt.Sprintf("%q", end.UTC().Format(time.RFC3339Nano))
					// The broker expires them a little before.
					s.send(workQueue, "same", ttl(4900*time.Millisecond), "Overdue-Deadline", at)
					if first {
						s.defers(workQueue)
					}
					time.Sleep(pause)
					s.send(workQueue, "same", ttl(time.Until(end)-100*time.Millisecond), "Overdue-Deadline", at)
					if !first {
						r, m := s.receive(workQueue)
						s.defers(workQueue)
						s.Must(r.AbandonMessage(s.Context(), m, nil))
						s.Must(r.Close(s.Context()))
					}
					s.wantAllExpired(workQueue, 10*time.Second, 3)
				})
			})
		}
	}
}

// wantAllExpired waits, and wants n dead letters at a path then, each notified of once, and
// nothing that waits.
func (s *scene) wantAllExpired(path string, wait time.Duration, n int) {
	s.Helper()
	time.Sleep(wait)
	if waiting, dead := len(s.Waiting(path)), len(s.Dead(path)); waiting != 0 || dead != n {
		s.Errorf("%s: %d wait and %d are dead letters, want none and %d", path, waiting, dead, n)
	}
	s.wantNotifiedOfAll(path)
	s.Settled(5 * time.Second)
}

// wantNotifiedOfAll wants each dead letter at a path to have been notified of once.
func (s *scene) wantNotifiedOfAll(path string) {
	s.Helper()
	var want, got []int64
	for _, m := range s.Dead(path) {
		want = append(want, m.SequenceNumber)
	}
	for _, e := range s.Hook.Events() {
		if e.Source == "sb://overdue.test/"+path && e.Type == alert.TypeMissed {
			got = append(got, e.Data.SequenceNumber)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		s.Errorf("%s: notified of %v, want each of %v once", path, got, want)
	}
}

// The times to live of subscriptions are not what the sidecar knows of, so that no copy has the
// deadline that its companion says: nothing distinguishes those with one id.
func TestCopiesOfATopicWhoseIDRepeats(t *testing.T) {
	capped := func(life time.Duration) func(*broker.SubscriptionSetup) {
		return func(c *broker.SubscriptionSetup) { c.DefaultMessageTimeToLive = life }
	}
	for _, defers := range []bool{false, true} {
		for _, pause := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("defers %v, pause %v", defers, pause), func(t *testing.T) {
				inModes(t, withTopic(subscription("short", capped(2*time.Second)), subscription("long", capped(9*time.Second)), subscription("free")), func(s *scene) {
					s.MeasureClock()
					s.startMonitor()
					for range 4 {
						s.send(topic, "same", "", "Overdue-Within", `"7s"`)
						time.Sleep(pause)
					}
					if defers {
						for _, name := range []string{"short", "long", "free"} {
							s.deferFrom(name, 1)
						}
					}
					s.subscriptionLife = 3 * time.Second
					for range 4 {
						s.send(topic, "same", ttl(time.Minute))
						time.Sleep(pause)
					}
					if defers && pause == 0 {
						s.deferFrom("long", 2)
					}
					time.Sleep(70 * time.Second)
					for _, name := range []string{"short", "long", "free"} {
						s.wantAllExpired(of(name), 0, 8)
					}
				})
			})
		}
	}
}

// The sidecar limits a deadline to the shortest time to live of the subscriptions. In one whose
// messages live longer, a copy still is a message of its companion, also where another one with its
// id has the limited deadline.
func TestCopiesThatOutliveTheShortestSubscription(t *testing.T) {
	capped := func(life time.Duration) func(*broker.SubscriptionSetup) {
		return func(c *broker.SubscriptionSetup) { c.DefaultMessageTimeToLive = life }
	}
	for _, second := range []time.Duration{2 * time.Second, 3 * time.Second} {
		t.Run(second.String(), func(t *testing.T) {
			inModes(t, withTopic(subscription("short", capped(3*time.Second)), subscription("long", capped(9*time.Second))), func(s *scene) {
				s.subscriptionLife = 3 * time.Second
				s.MeasureClock()
				s.startMonitor()
				time.Sleep(time.Minute) // long after the settings changed
				s.send(topic, "same", ttl(6*time.Second))
				time.Sleep(time.Second)
				s.send(topic, "same", ttl(second))
				time.Sleep(20 * time.Second)
				for _, name := range []string{"short", "long"} {
					s.wantAllExpired(of(name), 0, 2)
				}
			})
		})
	}
}

// deferFrom sets messages of a subscription, or of the work queue, aside.
func (s *scene) deferFrom(name string, n int) {
	s.Helper()
	r, err := s.Client.NewReceiverForSubscription(topic, name, nil)
	if name == workQueue {
		r, err = s.Client.NewReceiverForQueue(name, nil)
	}
	s.Must(err)
	for n > 0 {
		ms, err := r.ReceiveMessages(s.Context(), n, nil)
		s.Must(err)
		for _, m := range ms {
			s.Must(r.DeferMessage(s.Context(), m, nil))
		}
		n -= len(ms)
	}
	s.Must(r.Close(s.Context()))
}

// A message may state a deadline that is the one of another message, or that is the end of its own
// life.
func TestEqualDeadlinesOfMessagesWhoseIDRepeats(t *testing.T) {
	for _, c := range []struct {
		name  string
		life  time.Duration
		stamp bool
	}{{"stamped", 0, true}, {"capped", 3 * time.Second, true}, {"by hand", 0, false}} {
		for _, monitors := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d monitors", c.name, monitors), func(t *testing.T) {
				inModes(t, func(s *scene, b *broker.Config) {
					b.Queues[0].DefaultMessageTimeToLive, s.settings.DefaultMessageTimeToLive = c.life, c.life
				}, func(s *scene) {
					s.stamp = c.stamp
					s.MeasureClock()
					for range monitors {
						s.startMonitor()
					}
					for i := range 6 {
						within := []string{`"3s"`, `"5s"`}[i%2]
						if c.life == 0 {
							within = `"3s"`
						}
						s.send(workQueue, "same", "", "Overdue-Within", within)
						time.Sleep(time.Duration(i) * 100 * time.Millisecond)
					}
					s.wantAllExpired(workQueue, 10*time.Second, 6)
				})
			})
		}
	}
}

// One id for all is what some apps use. The cost grows with the messages, and not with how many
// others each reference matches. A message has expired, and a live one has its id. A monitor that
// stops at any moment of the check leaves the expired one to the next monitor, which does not wait
// for the deadline of the other.
func TestMonitorThatStopsBetweenTwoMessagesWithOneID(t *testing.T) {
	for wait := 100 * time.Millisecond; wait < 4*time.Second; wait += 100 * time.Millisecond {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			play(t, func(s *scene) {
				s.MeasureClock()
				s.send(workQueue, "same", session("first")+","+ttl(time.Second))
				time.Sleep(500 * time.Millisecond)
				s.send(workQueue, "same", session("second")+","+ttl(20*time.Minute))
				time.Sleep(2 * time.Second)
				s.Namespace.Net.Delay(pipenet.Both, 50*time.Millisecond)
				stop := s.startMonitor()
				time.Sleep(wait)
				stop()
				s.startMonitor()
				time.Sleep(20 * time.Second)
				if got := s.Hook.Events(); len(got) != 1 || got[0].Data.SequenceNumber != 1 {
					s.Errorf("notified of %v, want message 1 once", got)
				}
			}, func(s *scene, c *broker.Config) { c.Expiry = queue.Eager })
		})
	}
}

func TestOneIDForAllMessages(t *testing.T) {
	for _, c := range []struct {
		warnings []time.Duration
		most     float64 // operations, for each message
	}{{nil, 20}, {[]time.Duration{2 * time.Second, 8 * time.Second}, 80}} {
		t.Run(fmt.Sprint("warnings ", c.warnings), func(t *testing.T) {
			play(t, func(s *scene) {
				const n = 60
				s.settings.WarnBefore = c.warnings
				s.MeasureClock()
				s.startMonitor()
				for i := range n {
					s.send(workQueue, "same", ttl(10*time.Second))
					if i == n/2 {
						s.deferFrom(workQueue, 1)
					}
					time.Sleep(10 * time.Millisecond)
				}
				s.wantAllExpired(workQueue, time.Minute, n)
				ops, companions := s.Operations("")+float64(s.written.Load()), float64(s.written.Load())
				t.Logf("%.1f operations a message, %.1f of them for companions", ops/n, companions/n)
				if ops/n > c.most || companions/n > 16 {
					t.Errorf("%.1f operations a message, and %.1f companions; want %.0f and 16 at most", ops/n, companions/n, c.most)
				}
			})
		})
	}
}

// The broker has expired the one, and the other waits, for long yet: that is not the one that
// was missed.
func TestDeadLetterWhoseIDWaits(t *testing.T) {
	inModes(t, withTopic(subscription("one")), func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		for _, to := range []string{workQueue, topic} {
			s.send(to, "same", ttl(3*time.Second))
			time.Sleep(70 * time.Millisecond)
			s.send(to, "same", ttl(time.Hour))
		}
		time.Sleep(5 * time.Second)
		for _, path := range []string{workQueue, of("one")} {
			if waiting, dead := len(s.Waiting(path)), len(s.Dead(path)); waiting != 1 || dead != 1 {
				s.Errorf("%s: %d wait and %d are dead letters, want one and one", path, waiting, dead)
			}
			s.wantNotifiedOfAll(path)
		}
	})
}
