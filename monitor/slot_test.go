// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"

	"overdue/alert"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/notify"
	"overdue/monitor/scan"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// Each message of a slot that still waits has a watch of its own then, and one.
func TestAMessageOfASlotIsAdoptedOnce(t *testing.T) {
	e, wt, _ := absent(t)
	wt.slot = &scheduler.Companion{SlotEnd: noon.Add(time.Minute), Lives: []time.Duration{time.Minute}}
	u := slotSearch{Window: &judge.WindowsOf(wt.slot)[0], slots: map[*scheduler.Companion]*watch{wt.slot: wt}, e: e, known: map[search.Identity]bool{}}
	m := message(func(m *link.Message) { m.TimeToLive = time.Minute })
	u.present(m, time.Now())
	u.present(m, time.Now())
	u.present(message(func(m *link.Message) { m.TimeToLive, m.SequenceNumber = time.Hour, 8 }), time.Now())
	if len(u.found) != 1 || u.found[0].want.Identity != search.IdentityOf(m) || e.w.intake.Watching() != 3 {
		t.Errorf("%d watches were made, %d are open, want one more over the message", len(u.found), e.w.intake.Watching())
	}
}

// A search of slots collects what it finds, up to a bound. Beyond it, dead letters are notified of
// while they are read.
func TestASearchThatFindsManyDeadLettersNotifiesAtOnce(t *testing.T) {
	for found, atOnce := range map[int]int{0: 0, maxCollected - 1: 0, maxCollected: 1} {
		e, wt, _ := absent(t)
		begun := 0
		e.w.notifier = notify.New(notify.Config{Record: &e.w.notified, Begun: func(string, *alert.Event) { begun++ }, Log: zap.NewNop()})
		wt.slot = &scheduler.Companion{SlotEnd: noon.Add(time.Minute), Lives: []time.Duration{time.Minute}}
		u := slotSearch{Window: &judge.WindowsOf(wt.slot)[0], slots: map[*scheduler.Companion]*watch{wt.slot: wt}, e: e, known: map[search.Identity]bool{}, found: make([]*watch, found)}
		u.deadLettered(t.Context(), message(func(m *link.Message) { m.TimeToLive, m.DeadLetterReason = time.Minute, scan.Reason }))
		e.w.running.Wait()
		if begun != atOnce || e.notifiedAtOnce != atOnce || len(u.found) != found+1-atOnce {
			t.Errorf("with %d found, %d events are sent and %d watches are kept; want %d and %d", found, begun, len(u.found), atOnce, found+1-atOnce)
		}
	}
}

// A reference that states a default may stand for a message of another send, about the time at which
// the default changed. Then it says nothing of the default that this one has.
func TestADefaultOfAnotherSendIsAssumed(t *testing.T) {
	_, wt, _ := absent(t)
	wt.ref = scheduler.Reference{MessageID: "a", Sent: noon, From: noon, Until: noon.Add(time.Second), Within: 4 * time.Second, Stated: "default"}
	g := &manySearch{wt: wt}
	settings := Settings{DefaultMessageTimeToLive: 4 * time.Second, DefaultSince: noon.Add(2 * time.Second), DefaultStated: true}
	for enqueued, assumed := range map[time.Duration]bool{-36 * time.Millisecond: true, 0: false, time.Second: false, 1036 * time.Millisecond: true} {
		m := message(func(m *link.Message) { m.TimeToLive, m.EnqueuedTime = 0, noon.Add(enqueued) })
		found := g.watchOver(m)
		if j := judge.Message(&found.ref, m, settings, noon.Add(time.Minute)); !j.Overdue || j.Assumed != assumed {
			t.Errorf("enqueued %v after the send: overdue %v, assumed %v, want assumed %v", enqueued, j.Overdue, j.Assumed, assumed)
		}
	}
}
