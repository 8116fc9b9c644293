// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// A lock leaves the companion where it is; a settlement takes it along.
func TestSettlementTakesTheSecondDeadlineAlong(t *testing.T) {
	play(t, func(s *scene) {
		tr := s.traffic()
		s.startMonitor()
		send := func(id string, statements map[string]any) {
			tr.Must(tr.sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: &id, ApplicationProperties: statements, Body: []byte(id)}, nil))
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
				tr.Must(tr.receiver.RenewMessageLock(s.Context(), m, nil))
			}
		}
		s.WantEvents("incomplete alone, held", "incomplete both, held")
		if got := s.Verdicts(workQueue, "met"); got != 2 {
			t.Errorf("%v deadlines met, want 2", got)
		}
	}, early)
}
