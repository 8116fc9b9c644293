// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker/queue"
	"overdue/internal/testing/racetest"
	"overdue/scheduler/index"
)

// A consumer settles its message a second after the deadline. Where nobody has seen yet that dead
// letters stay, the message may as well have expired, and its dead letter was taken away.
func TestSettledLateIsUnknownUntilDeadLettersAreSeenToStay(t *testing.T) {
	for _, known := range []bool{false, true} {
		play(t, func(s *scene) {
			s.MeasureClock()
			s.startMonitor()
			if known {
				s.send(workQueue, "missed", ttl(time.Second))
				time.Sleep(3 * time.Second)
			}
			s.send(workQueue, "m", ttl(5*time.Second))
			r, m := s.receive(workQueue)
			time.Sleep(6 * time.Second)
			s.Must(r.CompleteMessage(s.Context(), m, nil))
			time.Sleep(10 * time.Second)
			want := map[string]float64{"met": 0, "unknown": 1}
			if known {
				want = map[string]float64{"met": 1, "unknown": 0}
				s.wantUnknown("")
			} else {
				s.wantUnknown("dead letters may have been taken away", "m")
			}
			for verdict, n := range want {
				if got := s.Verdicts(workQueue, verdict); got != n {
					s.Errorf("dead letters known to stay: %v: %v deadlines are %s, want %v", known, got, verdict, n)
				}
			}
			s.Settled(time.Second)
		})
	}
}

// A message that is settled well before its deadline is met, whether or not dead letters are known
// to stay.
func TestSettledEarlyIsMet(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", ttl(5*time.Second))
		r, m := s.receive(workQueue)
		s.Must(r.CompleteMessage(s.Context(), m, nil))
		time.Sleep(20 * time.Second)
		if met, unknown := s.Verdicts(workQueue, "met"), s.Verdicts(workQueue, "unknown"); met != 1 || unknown != 0 {
			s.Errorf("%v met and %v unknown, want 1 and 0", met, unknown)
		}
		s.Settled(time.Second)
	})
}

// In each session live messages stand before the overdue one, so that a nudge may not reach it and
// a scan expires it. Meanwhile somebody deletes the dead letters as they come.
func TestSessionsWhoseDeadLettersAreTakenAway(t *testing.T) {
	inModes(t, withSessions, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		defer s.drainDeadLetters()()
		var want []string
		for i := range 12 {
			in := "," + session(fmt.Sprint("s-", i%4))
			s.send(workQueue, fmt.Sprint("live-", i), ttl(time.Hour)+in)
			id := fmt.Sprintf("m-%02d", i)
			s.send(workQueue, id, ttl(3*time.Second)+in)
			want = append(want, id)
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if s.Expiry != queue.Eager {
			s.wantNotified(want...)
			return
		}
		// The broker has expired them by itself, and nothing of them was left to see.
		s.wantNotified()
		if got := s.Verdicts(workQueue, "unknown"); got != float64(len(want)) {
			s.Errorf("%v deadlines are unknown, want %d", got, len(want))
		}
	})
}

// A consumer has the session of an overdue message, settles the message about its deadline and
// gives the session up. The monitor accepts the session, and confirms after that what it found
// before.
func TestSettledWhileTheMonitorWaitsForItsSession(t *testing.T) {
	for after := time.Duration(0); after < 40*time.Millisecond; after += time.Millisecond {
		play(t, func(s *scene) {
			s.MeasureClock()
			s.startMonitor()
			s.send(workQueue, "m", ttl(2*time.Second)+","+session("a"))
			expires := time.Now().Add(2 * time.Second)
			r := s.accept(workQueue, "a")
			ms, err := r.ReceiveMessages(s.Context(), 1, nil)
			s.Must(err)
			time.Sleep(time.Until(expires.Add(after)))
			s.Must(r.CompleteMessage(s.Context(), ms[0], nil))
			s.Must(r.Close(s.Context()))
			time.Sleep(10 * time.Second)
			s.wantNotified()
			s.Settled(time.Second)
		}, withSessions)
	}
}

// A canary misses its deadline on purpose. It is notified like any message, and counted apart. What
// calls itself one on another queue is counted like any message.
func TestCanariesAreNoMissedDeadlines(t *testing.T) {
	for canary, want := range map[string]struct{ missed, canaries float64 }{workQueue: {0, 1}, "Orders": {0, 1}, "birds": {1, 0}, "": {1, 0}} {
		play(t, func(s *scene) {
			s.MeasureClock()
			s.canary = canary
			s.startMonitor()
			s.send(workQueue, "overdue-canary-1", ttl(2*time.Second))
			time.Sleep(10 * time.Second)
			s.wantNotified("overdue-canary-1")
			if missed, canaries := s.Verdicts(workQueue, "missed"), s.Verdicts(canary, "canary"); missed != want.missed || canaries != want.canaries {
				s.Errorf("with canaries on %q: %v missed and %v canaries, want %v and %v", canary, missed, canaries, want.missed, want.canaries)
			}
		})
	}
}

// The broker confirms a settlement to an endpoint later than it shows the monitor that the message
// is gone. The monitor waits for that, also where dead letters do not stay.
func TestASettlementIsNotExpiryBeforeItIsConfirmed(t *testing.T) {
	mistaken := 0
	step := time.Duration(racetest.Sized(250, 2000)) * time.Microsecond
	for after := time.Duration(0); after < 20*time.Millisecond; after += step {
		play(t, func(s *scene) {
			s.slots, s.oneProcess = true, true
			s.MeasureClock()
			s.startMonitor()
			s.sendLives(workQueue, []time.Duration{2 * time.Second}) // its letter is seen
			time.Sleep(4 * time.Second)
			defer s.drainDeadLetters()()
			s.sendLives(workQueue, []time.Duration{2 * time.Second}) // and is seen to be taken away
			time.Sleep(4 * time.Second)
			missed := len(s.Hook.Events())
			r, err := s.Client.NewReceiverForQueue(workQueue, nil)
			s.Must(err)
			s.sendLives(workQueue, []time.Duration{2 * time.Second})
			ms, err := r.ReceiveMessages(s.Context(), 1, nil)
			s.Must(err)
			d := index.Delivered{Entity: workQueue, Number: *ms[0].SequenceNumber, Enqueued: *ms[0].EnqueuedTime}
			time.Sleep(time.Until(ms[0].ExpiresAt.Add(after)))
			s.Scheduler.BeginSettle(d)
			s.Must(r.CompleteMessage(s.Context(), ms[0], nil))
			time.Sleep(200 * time.Millisecond)
			s.Scheduler.Settle(d)
			time.Sleep(time.Minute)
			mistaken += len(s.Hook.Events()) - missed
			s.Settled(time.Second)
		})
	}
	if mistaken > 0 {
		t.Errorf("%d settlements were taken for missed deadlines, want none", mistaken)
	}
}
