// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
)

func withSessions(_ *scene, c *broker.Config) { c.Queues[0].RequiresSession = true }

// Messages of many sessions, and nobody takes any: by their times to live, and by
// hand where these are longer than their deadlines.
func TestMissedDeadlinesInSessions(t *testing.T) {
	for _, blind := range []bool{false, true} {
		for _, stamp := range []bool{true, false} {
			t.Run(fmt.Sprintf("blind %v, stamp %v", blind, stamp), func(t *testing.T) {
				inModes(t, withSessions, func(s *scene) {
					s.undescribed, s.stamp = blind, stamp
					s.MeasureClock()
					s.startMonitor()
					var ids []string
					for i := range 30 {
						id := fmt.Sprintf("m-%02d", i)
						s.send(workQueue, id, session([]string{"a", "b", "c"}[i%3]), "Overdue-Within", `"2s"`)
						ids = append(ids, id)
					}
					time.Sleep(10 * time.Second)
					reason := "TTLExpiredException"
					if !stamp {
						reason = "DeadlineExceeded"
					}
					s.wantDead(workQueue, reason, 2*time.Second, time.Second, ids...)
					s.wantNotified(ids...)
					s.Settled(time.Second)
				})
			})
		}
	}
}

// The empty session-id names a session too.
func TestMissedDeadlineInTheSessionWithAnEmptyID(t *testing.T) {
	inModes(t, withSessions, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		id, none, life := "m", "", 2*time.Second
		s.Must(s.sendAll(workQueue, &azservicebus.Message{MessageID: &id, SessionID: &none, TimeToLive: &life}))
		time.Sleep(4 * time.Second)
		s.wantDead(workQueue, "TTLExpiredException", life, time.Second, "m")
		s.wantNotified("m")
	})
}

// A consumer holds the session, and with it all messages that wait there. Messages that it has not
// received when it gives the session up are expired then; those that it has completed are not. A
// peek without a session is empty at times, although there are messages. No verdict rests on one.
func TestASearchInSessionsThatIsEmptyAtTimes(t *testing.T) {
	for empty := 1; empty <= 2; empty++ {
		t.Run(fmt.Sprint(empty, " in a row"), func(t *testing.T) {
			inModes(t, withSessions, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				for _, id := range []string{"m-1", "m-2"} {
					s.send(workQueue, id, session("a"), "Overdue-Within", `"3s"`)
					s.Namespace.Broker.Default().Inject(broker.Fault{
						Entity: workQueue, Operation: broker.OnManagement, Request: "com.microsoft:peek-message", Times: empty,
						Error: amqp.Errorf("com.microsoft:message-not-found", "There are no messages."),
					})
					time.Sleep(10 * time.Second)
				}
				s.wantNotified("m-1", "m-2")
				if met := s.Verdicts(workQueue, "met"); met != 0 {
					s.Errorf("%v deadlines count as met, want none", met)
				}
				s.Settled(time.Second)
			})
		})
	}
}

func TestSessionThatIsHeldAtTheDeadline(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			inModes(t, withSessions, func(s *scene) {
				s.stamp = stamp
				s.MeasureClock()
				s.startMonitor()
				for i := range 3 {
					s.send(workQueue, fmt.Sprint("held-", i), session("held"), "Overdue-Within", `"2s"`)
				}
				r := s.accept(workQueue, "held")
				ms, err := r.ReceiveMessages(s.Context(), 1, nil)
				if err != nil || len(ms) != 1 {
					s.Fatalf("receive = %d messages, %v", len(ms), err)
				}
				time.Sleep(20 * time.Second)
				if s.Expiry == queue.Eager && stamp {
					s.wantNotified("held-1", "held-2") // the broker has moved what only waits there
				} else {
					s.wantNotified()
				}
				if err := r.CompleteMessage(s.Context(), ms[0], nil); err != nil {
					s.Errorf("Complete after the deadline = %v, want it to succeed", err)
				}
				s.send(workQueue, "other", session("other"), "Overdue-Within", `"2s"`)
				time.Sleep(5 * time.Second)
				if notified := s.Hook.Subjects(); !slices.Contains(notified, "other") || slices.Contains(notified, "held-0") {
					s.Errorf("notified of %v, want of the one in the other session", notified)
				}
				if err := r.Close(s.Context()); err != nil {
					s.Fatal(err)
				}
				time.Sleep(1500 * time.Millisecond)
				s.wantNotified("other", "held-1", "held-2")
				s.Settled(time.Second)
			})
		})
	}
}

// Live messages stand in the same sessions. They keep their order, their counts and the state of
// the session.
func TestSessionsAreNotDisturbed(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			inModes(t, withSessions, func(s *scene) {
				s.stamp = stamp
				names := []string{"a", "b", "c", "d"}
				for _, name := range names {
					r := s.accept(workQueue, name)
					if err := r.SetSessionState(s.Context(), []byte("state of "+name), nil); err != nil {
						s.Fatal(err)
					}
					if err := r.Close(s.Context()); err != nil {
						s.Fatal(err)
					}
				}
				s.MeasureClock()
				s.startMonitor()
				const live = 100
				for i := range live {
					s.send(workQueue, fmt.Sprint("live-", i), ttl(time.Hour)+","+session(names[i%4]))
					if i%10 == 5 {
						s.send(workQueue, fmt.Sprint("overdue-", i), session(names[i%4]), "Overdue-Within", `"3s"`)
					}
				}
				before := livingOf(s)
				time.Sleep(15 * time.Second)
				if diff := cmp.Diff(before, livingOf(s)); diff != "" {
					s.Errorf("the live messages changed (-before +after):\n%s", diff)
				}
				if dead := len(s.Dead(workQueue)); dead != live/10 {
					s.Errorf("%d dead letters, want %d", dead, live/10)
				}
				for i, name := range names {
					r := s.accept(workQueue, name)
					state, err := r.GetSessionState(s.Context(), nil)
					if err != nil || string(state) != "state of "+name {
						s.Errorf("state of %s = %q, %v", name, state, err)
					}
					s.inOrder(r, i, len(names), live)
				}
			})
		})
	}
}

// inOrder receives the live messages first, first+step, … of a session on their first delivery.
func (s *scene) inOrder(r *azservicebus.SessionReceiver, first, step, end int) {
	s.Helper()
	for i := first; i < end; {
		ms, err := r.ReceiveMessages(s.Context(), (end-i+step-1)/step, nil)
		if err != nil {
			s.Fatal(err)
		}
		for _, m := range ms {
			if want := fmt.Sprint("live-", i); m.MessageID != want || m.DeliveryCount != 1 {
				s.Fatalf("%s on delivery %d, want %s on its first", m.MessageID, m.DeliveryCount, want)
			}
			i += step
		}
	}
}

// A deferred message belongs to its session, whose lock it takes to expire it, also where nobody
// has notified the monitor that there are sessions.
func TestDeferredInASession(t *testing.T) {
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprint("blind ", blind), func(t *testing.T) {
			inModes(t, withSessions, func(s *scene) {
				s.undescribed, s.stamp = blind, false
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "m", session("a"), "Overdue-Within", `"3s"`)
				r := s.accept(workQueue, "a")
				ms, err := r.ReceiveMessages(s.Context(), 1, nil)
				if err != nil || len(ms) != 1 {
					s.Fatalf("receive = %d messages, %v", len(ms), err)
				}
				if err := r.DeferMessage(s.Context(), ms[0], nil); err != nil {
					s.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				s.wantNotified() // its session is held
				if err := r.Close(s.Context()); err != nil {
					s.Fatal(err)
				}
				time.Sleep(1500 * time.Millisecond)
				s.wantDead(workQueue, "DeadlineExceeded", 3*time.Second, 9*time.Second, "m")
				s.wantNotified("m")
				s.Settled(time.Second)
			})
		})
	}
}
