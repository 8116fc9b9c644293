// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/index"
)

// Slots may stand for messages of an entity that are settled meanwhile: so a settlement has to say
// on which entity it was.
func TestASettlementSaysWhereTheMessageWasReceived(t *testing.T) {
	for _, entity := range []string{"orders", "payments"} { // of which the first has slots
		synctest.Test(t, func(t *testing.T) {
			ns := brokertest.New(t)
			s, err := scheduler.New(scheduler.Config{Links: ns.Links(t), MonitorQueue: monitorQueue})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.MeasureClock(t.Context()); err != nil {
				t.Fatal(err)
			}
			at := s.Now().Time.Truncate(time.Millisecond)
			r := scheduler.Reference{MessageID: "m", From: at, Until: at, Deadline: at.Add(time.Minute), Within: time.Minute}
			s.Expect(entity, []scheduler.Reference{r})
			s.Confirm(entity, []scheduler.Reference{r})
			s.ExpectInSlots("orders", at)
			l := &settleLink{p: &Proxy{cfg: Config{Scheduler: s}}, entity: entity, path: entity}
			l.Settled(noteOf(index.Delivered{Key: index.KeyOf(entity, "m", ""), Enqueued: at, Deadline: r.Deadline}, 0))
			if got, want := s.Settled(entity, &r), entity != "orders"; got != want {
				t.Errorf("settled on %s: taken %v, want %v", entity, got, want)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
