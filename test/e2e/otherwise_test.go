// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/broker/quirk"
)

// playOtherwise plays a scene on a broker that differs from what is assumed of Service Bus.
func playOtherwise(t *testing.T, q quirk.Set, act func(s *scene)) {
	t.Helper()
	play(t, func(s *scene) {
		s.MeasureClock()
		act(s)
	}, func(_ *scene, c *broker.Config) { c.Quirks = q })
}

// receive has a consumer complete n messages, or wait for a second where there is none.
func (s *scene) receive(n int) {
	s.Helper()
	r, err := s.Client.NewReceiverForQueue(workQueue, nil)
	s.Must(err)
	ctx, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	for {
		ms, err := r.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			break
		}
		n -= len(ms)
		s.Must(r.CompleteMessage(s.Context(), ms[0], nil))
	}
	if n != 0 {
		s.Errorf("the consumer wants %d messages more", n)
	}
	s.Must(r.Close(s.Context()))
}

// A dead letter with a new number, or a new stamp, has the event of its message: one, with the number,
// the stamp and the deadline that the message had.
func TestDeadLettersThatDifferFromTheirMessages(t *testing.T) {
	for _, q := range []quirk.Set{quirk.DeadLettersRenumbered, quirk.DeadLettersRestamped} {
		t.Run(q.String(), func(t *testing.T) {
			playOtherwise(t, q, func(s *scene) {
				s.startMonitor()
				s.sendMany("gone", 3, func(int) time.Duration { return time.Minute })
				s.receive(3) // from here on the numbers of the two queues differ
				life := func(i int) time.Duration { return 3*time.Second + time.Duration(i*5%12)*700*time.Millisecond }
				s.sendMany("m", 12, life)
				sent := time.Now()
				time.Sleep(2 * time.Minute)
				events := s.Hook.Events()
				if len(events) != 12 {
					s.Errorf("%d events, want one for each of 12 messages", len(events))
				}
				for _, e := range events {
					var i int
					if _, err := fmt.Sscanf(e.Subject, "m-%d", &i); err != nil || e.Type != alert.TypeMissed {
						s.Fatalf("%+v: %v", e, err)
					}
					if due := e.Data.EnqueuedTime.Add(life(i)); e.Data.SequenceNumber != int64(i+4) || !e.Data.Deadline.Equal(due) || e.Data.EnqueuedTime.After(sent) {
						s.Errorf("%s: number %d, enqueued %v, deadline %v; want those of its message", e.Subject, e.Data.SequenceNumber, e.Data.EnqueuedTime, e.Data.Deadline)
					}
				}
				s.Settled(2 * time.Second)
			})
		})
	}
}

// sendMany sends n messages, a few milliseconds apart, and returns what is notified if all are missed.
func (s *scene) sendMany(name string, n int, life func(i int) time.Duration) (missed []string) {
	s.Helper()
	for i := range n {
		id := fmt.Sprint(name, "-", i)
		time.Sleep(3 * time.Millisecond)
		s.send(workQueue, id, ttl(life(i)))
		missed = append(missed, "missed "+id)
	}
	return missed
}

// Stamps are cut to whole seconds, so that a message seems to be older than its send, and a scheduled one
// older than its activation. No deadline is early by the stamp, and none is left out.
func TestStampsOfWholeSeconds(t *testing.T) {
	playOtherwise(t, quirk.StampsSeconds, func(s *scene) {
		s.startMonitor()
		want := s.sendMany("m", 300, func(int) time.Duration { return 3 * time.Second })
		at := time.Now().Add(2300 * time.Millisecond).UTC()
		s.send(workQueue, "scheduled", fmt.Sprintf(`"TimeToLive":2,"ScheduledEnqueueTimeUtc":%q`, at.Format(time.RFC3339Nano)))
		time.Sleep(15 * time.Second)
		if got := s.Hook.Subjects(); len(got) != len(want)+1 || !slices.Contains(got, "scheduled") {
			s.Errorf("notified of %d, want of all %d", len(got), len(want)+1)
		}
		s.Settled(2 * time.Second)
	})
}
