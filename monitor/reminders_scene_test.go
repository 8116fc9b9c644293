// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
)

// warns has these warnings of each deadline.
func warns(before ...time.Duration) func(*scene, *broker.Config) {
	return func(s *scene, _ *broker.Config) { s.settings.WarnBefore = before }
}

func TestDeadlineThatIsNearIsNotified(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		t.Run(fmt.Sprint("stamp ", stamp), func(t *testing.T) {
			inModes(t, warns(30*time.Second, 3*time.Second), func(s *scene) {
				s.stamp = stamp
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "done", "", within(time.Minute)...)
				s.send(workQueue, "long", "", within(time.Minute)...)
				s.send(workQueue, "short", "", within(10*time.Second)...)
				s.send(workQueue, "shortest", "", within(2*time.Second)...)
				s.send(workQueue, "for ever", "")
				time.Sleep(6 * time.Second)
				s.WantEvents("missed shortest")
				time.Sleep(6 * time.Second)
				s.WantEvents("missed shortest", "near short", "missed short")
				r, done := s.receive(workQueue)
				s.Must(r.CompleteMessage(s.Context(), done, nil))
				time.Sleep(20 * time.Second)
				s.WantEvents("missed shortest", "near short", "missed short", "near long")
				time.Sleep(40 * time.Second)
				s.WantEvents("missed shortest", "near short", "missed short", "near long", "near long", "missed long")
				s.Settled(time.Second)
				for _, e := range s.Hook.Events() {
					if e.Type != "overdue.deadline.near" {
						continue
					}
					before := time.Duration(e.Data.WarnBeforeMs) * time.Millisecond
					if before != 3*time.Second && before != 30*time.Second || e.Data.State != "active" || e.Data.DeadLetterReason != "" {
						t.Errorf("near: %+v", e.Data)
					}
				}
				if got := s.Verdicts(workQueue, "missed"); got != 3 {
					t.Errorf("%v deadlines missed, want 3: warnings are none", got)
				}
			})
		})
	}
}

// A message that a consumer holds or has set aside is not settled: that is what a warning says.
func TestWarningOfALockedOrDeferredMessage(t *testing.T) {
	inModes(t, warns(5*time.Second), func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "aside", "", within(20*time.Second)...)
		s.defers(workQueue)
		s.send(workQueue, "held", "", within(20*time.Second)...)
		r, m := s.receive(workQueue)
		time.Sleep(17 * time.Second)
		s.WantEvents("near aside", "near held")
		s.Must(r.CompleteMessage(s.Context(), m, nil))
		time.Sleep(10 * time.Second)
		s.WantEvents("near aside", "near held", "missed aside")
		s.Settled(time.Second)
	})
}

func TestWarningsOfCopiesAndSessions(t *testing.T) {
	inModes(t, func(s *scene, c *broker.Config) {
		withTopic(subscription("done"), subscription("idle"), subscription("sessions", func(c *broker.SubscriptionSetup) { c.RequiresSession = true }))(s, c)
		withSessions(s, c)
		warns(5*time.Second)(s, c)
	}, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(topic, "copy", session("s"), within(12*time.Second)...)
		s.send(workQueue, "alone", session("s"), within(12*time.Second)...)
		s.receiveFrom("done", 1)
		time.Sleep(15 * time.Second)
		s.WantEvents("near copy of idle", "near copy of sessions", "near alone", "missed copy of idle", "missed copy of sessions", "missed alone")
		s.Settled(time.Second)
	})
}

// The clock of a scheduled message starts when it is activated.
func TestWarningOfAScheduledMessage(t *testing.T) {
	inModes(t, warns(5*time.Second), func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		id, at := "m", s.Namespace.Broker.Now().Add(20*time.Second)
		ms := []*azservicebus.Message{{
			MessageID: &id, ScheduledEnqueueTime: &at, ApplicationProperties: map[string]any{"overdue-within": "10s", "overdue-complete-within": "30s"},
		}}
		s.Must(s.watched(workQueue, ms, func(ctx context.Context, sender *azservicebus.Sender) error {
			_, err := sender.ScheduleMessages(ctx, ms, at, nil)
			return err
		}))
		time.Sleep(24 * time.Second)
		s.WantEvents()
		time.Sleep(2 * time.Second)
		s.WantEvents("near m")
		_, _ = s.receive(workQueue)
		time.Sleep(30 * time.Second)
		s.WantEvents("near m", "incomplete m")
	})
}

// The deadline does not hang on the warning: neither on its sink, nor on who was there when it
// was due.
func TestWarningThatNoSinkAcceptsCostsNoDeadline(t *testing.T) {
	inModes(t, warns(10*time.Second), func(s *scene) {
		s.MeasureClock()
		stop := s.startMonitor()
		s.send(workQueue, "m", "", within(20*time.Second)...)
		s.Hook.Answer(http.StatusServiceUnavailable)
		time.Sleep(12 * time.Second)
		stop()
		s.startMonitor()
		time.Sleep(9 * time.Second)
		s.wantDead(workQueue, "TTLExpiredException", 20*time.Second, time.Second, "m")
		s.Hook.Answer(http.StatusOK)
		time.Sleep(time.Minute)
		if got := len(s.Hook.Events()); got != 2 {
			t.Errorf("%d events, want the warning and the missed deadline, once each", got)
		}
		s.Settled(time.Second)
	})
}

// A monitor that comes late notifies of what is nearest, and not of what is over.
func TestAMonitorThatStartsLateStillWarns(t *testing.T) {
	inModes(t, func(s *scene, c *broker.Config) {
		s.oneProcess = true
		warns(30*time.Second, 20*time.Second, 5*time.Second)(s, c)
	}, func(s *scene) {
		s.MeasureClock()
		s.send(workQueue, "m", "", within(40*time.Second)...)
		s.send(workQueue, "over", "", within(20*time.Second)...)
		time.Sleep(25 * time.Second)
		s.startMonitor()
		time.Sleep(2 * time.Second)
		var near []int64
		for _, e := range s.Hook.Events() {
			if e.Type == "overdue.deadline.near" {
				near = append(near, e.Data.WarnBeforeMs)
			}
		}
		if len(near) != 1 || near[0] != 20_000 || len(s.Hook.Events()) != 2 {
			t.Errorf("warned %v ms before among %d events, want once, 20 s before, and the missed deadline", near, len(s.Hook.Events()))
		}
		time.Sleep(20 * time.Second)
		if got := len(s.Hook.Events()); got != 4 {
			t.Errorf("%d events in the end, want 4", got)
		}
		s.Settled(time.Second)
	})
}
