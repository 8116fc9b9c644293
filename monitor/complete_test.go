// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
)

// within and completed are the headers that state the two deadlines of a message.
func within(d time.Duration) []string { return []string{"overdue-within", fmt.Sprintf("%q", d)} }
func completed(d time.Duration) []string {
	return []string{"overdue-complete-within", fmt.Sprintf("%q", d)}
}

// nothing is how most scenes set their entities up.
func nothing(*scene, *broker.Config) {}

func TestMessageThatIsLockedTooLongIsNotified(t *testing.T) {
	inModes(t, nothing, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", "", append(within(2*time.Second), completed(10*time.Second)...)...)
		s.send(workQueue, "in time", "", append(within(2*time.Second), completed(10*time.Second)...)...)
		s.send(workQueue, "expired", "", append(within(2*time.Second), completed(10*time.Second)...)...)
		r, m := s.receive(workQueue)
		quick, n := s.receive(workQueue)
		time.Sleep(9 * time.Second)
		s.Must(quick.CompleteMessage(s.Context(), n, nil))
		s.WantEvents("missed expired")
		time.Sleep(2 * time.Second)
		// Its first deadline was missed: of the second one nobody is notified.
		s.WantEvents("missed expired", "incomplete m")
		time.Sleep(20 * time.Second)
		s.Must(r.CompleteMessage(s.Context(), m, nil))
		s.Settled(5 * time.Second)
		s.WantEvents("missed expired", "incomplete m")
		s.wantDead(workQueue, "TTLExpiredException", 2*time.Second, time.Second, "expired")
		for verdict, want := range map[string]float64{"met": 2, "missed": 1, "incomplete": 1} {
			if got := s.Verdicts(workQueue, verdict); got != want {
				t.Errorf("%v deadlines %s, want %v", got, verdict, want)
			}
		}
	})
}

func TestMessageThatOnlyHasToBeCompleted(t *testing.T) {
	inModes(t, nothing, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		for _, id := range []string{"done", "held", "waits"} {
			s.send(workQueue, id, "", completed(5*time.Second)...)
		}
		r, done := s.receive(workQueue)
		_, held := s.receive(workQueue)
		s.Must(r.CompleteMessage(s.Context(), done, nil))
		time.Sleep(time.Until(held.EnqueuedTime.Add(5*time.Second - 50*time.Millisecond)))
		s.WantEvents()
		time.Sleep(time.Second)
		s.WantEvents("incomplete held", "incomplete waits")
		s.Settled(time.Second) // nobody checks them any more
		time.Sleep(5 * time.Minute)
		s.WantEvents("incomplete held", "incomplete waits")
		if got := len(s.Waiting(workQueue)); got != 2 || len(s.Dead(workQueue)) != 0 {
			t.Errorf("%d messages wait and %d are dead letters, want both there: they are never expired", got, len(s.Dead(workQueue)))
		}
		if met, not := s.Verdicts(workQueue, "met"), s.Verdicts(workQueue, "incomplete"); met != 1 || not != 2 {
			t.Errorf("%v deadlines met and %v incomplete, want 1 and 2", met, not)
		}
	})
}

func TestCompletionThatTheEntityDemands(t *testing.T) {
	inModes(t, func(s *scene, _ *broker.Config) { s.settings.CompleteWithin = 5 * time.Second }, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "entity", "")
		s.send(workQueue, "own", "", completed(8*time.Second)...)
		s.send(workQueue, "expired", ttl(2*time.Second))
		s.send(workQueue, "lives", ttl(time.Minute))
		time.Sleep(7 * time.Second)
		s.WantEvents("missed expired", "incomplete entity", "incomplete lives")
		time.Sleep(3 * time.Second)
		s.WantEvents("missed expired", "incomplete entity", "incomplete lives", "incomplete own")
		time.Sleep(time.Minute)
		s.WantEvents("missed expired", "incomplete entity", "incomplete lives", "incomplete own", "missed lives")
		s.Settled(time.Second)
	})
}

func TestMessageThatIsDeferredTooLongIsNotified(t *testing.T) {
	inModes(t, nothing, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m", "", completed(5*time.Second)...)
		s.defers(workQueue)
		time.Sleep(6 * time.Second)
		s.WantEvents("incomplete m")
		if e := s.Hook.Events(); len(e) == 1 && e[0].Data.State != "deferred" {
			t.Errorf("state %q, want deferred", e[0].Data.State)
		}
		s.Settled(time.Second)
	})
}

func TestSessionThatIsLockedTooLongIsNotified(t *testing.T) {
	inModes(t, withSessions, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		for _, id := range []string{"a-1", "b-1"} {
			s.send(workQueue, id, session(id[:1]), append(within(2*time.Second), completed(8*time.Second)...)...)
		}
		r := s.accept(workQueue, "a")
		ms, err := r.ReceiveMessages(s.Context(), 1, nil)
		if err != nil || len(ms) != 1 {
			t.Fatalf("receive = %d, %v", len(ms), err)
		}
		time.Sleep(10 * time.Second)
		s.WantEvents("missed b-1", "incomplete a-1")
		for _, e := range s.Hook.Events() {
			if e.Data.SessionID != e.Subject[:1] {
				t.Errorf("%s is said to be in session %q", e.Subject, e.Data.SessionID)
			}
		}
	})
}

func TestCompletionOfATopicsCopies(t *testing.T) {
	short := subscription("short", func(c *broker.SubscriptionSetup) { c.DefaultMessageTimeToLive = 2 * time.Second })
	inModes(t, func(s *scene, c *broker.Config) {
		withTopic(subscription("done"), subscription("idle"), short)(s, c)
		s.subscriptionLife = 2 * time.Second
	}, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(topic, "m", "", completed(6*time.Second)...)
		s.receiveFrom("done", 1)
		time.Sleep(5 * time.Second)
		s.WantEvents("missed m of short")
		time.Sleep(3 * time.Second)
		s.WantEvents("missed m of short", "incomplete m of idle")
		s.Settled(time.Second)
		if got := len(s.Waiting(of("idle"))); got != 1 {
			t.Errorf("%d messages wait in idle, want 1: it has no time to live", got)
		}
	})
}

// A notification of a message that is still there is as durable as any alert, and is sent once
// although monitors change.
func TestIncompleteMessageWhoseSinkIsDown(t *testing.T) {
	inModes(t, nothing, func(s *scene) {
		s.MeasureClock()
		stop := s.startMonitor()
		s.send(workQueue, "alone", "", completed(5*time.Second)...)
		s.send(workQueue, "both", "", append(within(2*time.Second), completed(5*time.Second)...)...)
		s.receive(workQueue)
		r, both := s.receive(workQueue)
		s.Hook.Answer(http.StatusServiceUnavailable)
		time.Sleep(20 * time.Second)
		stop()
		s.startMonitor()
		time.Sleep(5 * time.Second)
		s.Hook.Answer(http.StatusOK)
		time.Sleep(20 * time.Second)
		notified := s.Hook.Subjects()
		if want := []string{"alone", "both"}; !slices.Equal(notified, want) {
			t.Errorf("notified of %v, want %v", notified, want)
		}
		s.startMonitor()
		s.Must(r.CompleteMessage(s.Context(), both, nil))
		s.Settled(10 * time.Second)
		if again := s.Hook.Subjects(); !slices.Equal(notified, again) {
			t.Errorf("notified of %v in the end, want %v", again, notified)
		}
	})
}

func TestSlotsKeepSecondDeadlines(t *testing.T) {
	inModes(t, func(s *scene, _ *broker.Config) { s.slots = true }, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		for i := range 20 {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(2*time.Second), completed(10*time.Second)...)
		}
		var want []string
		for range 5 {
			_, m := s.receive(workQueue)
			want = append(want, "incomplete "+m.MessageID)
		}
		for i := range 15 {
			want = append(want, fmt.Sprint("missed m-", i+5))
		}
		time.Sleep(12 * time.Second)
		s.WantEvents(want...)
	})
}
