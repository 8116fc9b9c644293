// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// Each message of a slot that still waits has a watch of its own then, and one.
func TestAMessageOfASlotIsAdoptedOnce(t *testing.T) {
	e, wt, _ := absent(t)
	wt.slot = &scheduler.Companion{SlotEnd: noon.Add(time.Minute), Lives: []time.Duration{time.Minute}}
	u := slotSearch{window: &window{noon.Add(-time.Second), noon, []*watch{wt}}, e: e, known: map[search.Identity]bool{}}
	m := message(func(m *link.Message) { m.TimeToLive = time.Minute })
	u.present(m, time.Now())
	u.present(m, time.Now())
	u.present(message(func(m *link.Message) { m.TimeToLive, m.SequenceNumber = time.Hour, 8 }), time.Now())
	if len(u.found) != 1 || u.found[0].want.Identity != search.IdentityOf(m) || e.w.intake.Watching() != 3 {
		t.Errorf("%d watches were made, %d are open, want one more over the message", len(u.found), e.w.intake.Watching())
	}
}
