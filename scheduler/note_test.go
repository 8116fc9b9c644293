// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// A note waits on the monitor queue like a companion, and one that was kept twice has one id.
func TestANoteWaitsOnTheMonitorQueueUntilItIsDue(t *testing.T) {
	var written []error
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		due := time.Now().Add(time.Minute)
		note := scheduler.Note{Due: due, ContentType: "text/plain", Subject: "note", Body: []byte("hello")}
		later := note
		later.Due = due.Add(time.Minute)
		named := note
		named.ID = "mine"
		for _, n := range []scheduler.Note{note, note, later, named} {
			if err := s.Keep(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		got := companions(t, ns)
		if len(got) != 4 {
			t.Fatalf("%d notes are on the monitor queue, want 4", len(got))
		}
		for i, want := range []time.Time{due, due, later.Due, due} {
			if got[i].State != queue.Scheduled || !got[i].ScheduledEnqueueTime.Equal(want) {
				t.Errorf("note %d is %v and due at %v, want scheduled for %v", i, got[i].State, got[i].ScheduledEnqueueTime, want)
			}
		}
		if got[0].MessageID != got[1].MessageID || got[0].MessageID == got[2].MessageID || got[3].MessageID != "mine" {
			t.Errorf("ids %q, %q, %q, %q, want one for the same note, another for another, and its own where it has one",
				got[0].MessageID, got[1].MessageID, got[2].MessageID, got[3].MessageID)
		}
		ns.Broker.Default().Inject(broker.Fault{Entity: monitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
		if err := s.Keep(t.Context(), note); err == nil {
			t.Error("a note that the monitor queue refuses = nil, want an error")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Keep(t.Context(), note); !errors.Is(err, scheduler.ErrClosed) {
			t.Errorf("a note after Close = %v, want ErrClosed", err)
		}
		if len(written) != 5 || slices.ContainsFunc(written[:4], func(err error) bool { return err != nil }) || written[4] == nil {
			t.Errorf("transfers %v were reported, want four that succeeded and one that did not", written)
		}
	}, func(_ *broker.Config, c *scheduler.Config) {
		c.Written = func(_ int, err error) { written = append(written, err) }
	})
}
