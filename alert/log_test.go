// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestTheLogSaysWhatHappenedInOneSentence(t *testing.T) {
	missed := func(change func(*Event)) Event {
		e := Event{Type: TypeMissed, Subject: "order-1", Data: EventData{
			Entity: "orders", Deadline: noon, DeadLetteredTime: noon.Add(14 * time.Millisecond), DeadLetterReason: "TTLExpiredException",
		}}
		change(&e)
		return e
	}
	for want, change := range map[string]func(*Event){
		"deadline missed: orders/order-1, 14 ms late, dead-lettered (TTLExpiredException)": func(*Event) {},
		"deadline missed: orders/audit/order-1, 14 ms late":                                func(e *Event) { e.Data.Subscription, e.Data.DeadLetterReason = "audit", "" },
		"deadline missed: orders/order-1, 2.5 s late, dead-lettered (TTLExpiredException)": func(e *Event) { e.Data.DeadLetteredTime = noon.Add(2500 * time.Millisecond) },
		"message not completed in time: orders/order-1, 1m30s late, still deferred": func(e *Event) {
			e.Type, e.Data.DeadLetteredTime, e.Data.LagMs, e.Data.State = TypeIncomplete, time.Time{}, 90_000, "deferred"
		},
		"deadline near: orders/order-1, due 2026-01-31 12:00:00Z": func(e *Event) { e.Type = TypeNear },
		"overdue.other: orders/order-1":                           func(e *Event) { e.Type = "overdue.other" },
	} {
		core, logged := observer.New(zap.InfoLevel)
		e := missed(change)
		a := NewLog(zap.New(core))
		if err := a.Alert(t.Context(), e); err != nil || a.Name() != "log" {
			t.Errorf("Alert by %s = %v", a.Name(), err)
		}
		all := logged.All()
		if len(all) != 1 || all[0].Message != want || len(all[0].Context) != 1 || all[0].Context[0].Interface != any(e) {
			t.Errorf("logged %+v, want %q with the event as its only field", all, want)
		}
	}
}
