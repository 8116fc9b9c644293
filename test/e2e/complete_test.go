// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/alert"
)

// A lock leaves the companion where it is; a settlement takes it along.
func TestSettlementTakesTheSecondDeadlineAlong(t *testing.T) {
	play(t, func(s *scene) {
		tr := s.traffic()
		s.startMonitor()
		send := func(id string, statements map[string]any) {
			tr.must(tr.sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: &id, ApplicationProperties: statements, Body: []byte(id)}, nil))
		}
		send("alone", map[string]any{"overdue-complete-within": "1m"})
		send("both", map[string]any{"overdue-complete-within": "1m", "overdue-within": "30s"})
		send("alone, held", map[string]any{"overdue-complete-within": "1m"})
		send("both, held", map[string]any{"overdue-complete-within": "1m", "overdue-within": "30s"})
		tr.complete(2)
		held := tr.receive(2)
		time.Sleep(15 * time.Second)
		if got := s.waitingCompanions(); got != 2 {
			t.Errorf("%d companions wait for two messages that are settled and two that are held, want 2", got)
		}
		for range 2 {
			time.Sleep(25 * time.Second)
			for _, m := range held {
				tr.must(tr.receiver.RenewMessageLock(s.Context(), m, nil))
			}
		}
		s.wantEvents("incomplete alone, held", "incomplete both, held")
		if got := s.verdicts(workQueue, "met"); got != 2 {
			t.Errorf("%v deadlines met, want 2", got)
		}
	}, early)
}

// wantEvents wants these and no other events, as "type subject" without what all types begin
// with, in any order; each no later than a second after what it is about, and not before.
func (s *scene) wantEvents(want ...string) {
	s.Helper()
	var got []string
	for _, e := range s.hook.Events() {
		name := e.Type[len("overdue.deadline."):] + " " + e.Subject
		if sub := e.Data.Subscription; sub != "" {
			name += " of " + sub
		}
		got = append(got, name)
		kind := "received"
		if e.Type == alert.TypeIncomplete {
			kind = "completed"
		}
		if e.Data.DeadlineKind != kind || e.Data.LagMs < 0 || e.Data.LagMs > 1000 || e.Data.SequenceNumber == 0 || e.Data.EnqueuedTime.IsZero() {
			s.Errorf("%s: %+v; want a deadline to be %s and a lag of 0 to 1000 ms", name, e.Data, kind)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("notified of (-want +got):\n%s", diff)
	}
}
