// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestTheLogSaysWhatHappenedInOneSentence(t *testing.T) {
	missed := func(change func(*Event)) Event {
		e := Event{Type: TypeMissed, Subject: "order-1", Data: EventData{
			Entity: "orders", SequenceNumber: 17, Deadline: noon, DeadLetteredTime: noon.Add(14 * time.Millisecond), DeadLetterReason: "TTLExpiredException",
		}}
		change(&e)
		return e
	}
	for want, change := range map[string]func(*Event){
		"deadline missed: orders/order-1, 14 ms late, dead-lettered (TTLExpiredException)": func(*Event) {},
		"deadline missed: orders/Subscriptions/audit/order-1, 14 ms late":                  func(e *Event) { e.Data.Subscription, e.Data.DeadLetterReason = "audit", "" },
		"deadline missed: orders/#17, 14 ms late":                                          func(e *Event) { e.Subject, e.Data.DeadLetterReason = "#17", "" },
		"deadline missed: orders/order-1, 2.5 s late, dead-lettered (TTLExpiredException)": func(e *Event) { e.Data.DeadLetteredTime = noon.Add(2500 * time.Millisecond) },
		"message not completed in time: orders/order-1, 1m30s late, still deferred": func(e *Event) {
			e.Type, e.Data.DeadLetteredTime, e.Data.LagMs, e.Data.State = TypeIncomplete, time.Time{}, 90_000, "deferred"
		},
		"deadline near: orders/order-1, due 2026-01-31 12:00:00Z":        func(e *Event) { e.Type = TypeNear },
		"overdue.other: orders/order-1":                                  func(e *Event) { e.Type = "overdue.other" },
		"deadline near: orders/order-1, due 2026-01-31 12:00:00Z, muted": func(e *Event) { e.Type, e.Data.Muted = TypeNear, true },
	} {
		core, logged := observer.New(zap.InfoLevel)
		e := missed(change)
		a := NewLog(zap.New(core))
		if err := a.Alert(t.Context(), e); err != nil || a.Name() != "log" {
			t.Errorf("Alert by %s = %v", a.Name(), err)
		}
		all := logged.All()
		if len(all) != 1 || all[0].Message != want {
			t.Errorf("logged %+v, want only %q", all, want)
		}
	}
}

func TestTheLogHasFieldsForSearchesAndTheWholeEventAtDebug(t *testing.T) {
	e := Event{Type: TypeMissed, Subject: "order-1", Data: EventData{
		Entity: "events", Subscription: "audit", MessageID: "order-1", SequenceNumber: 17, Strategy: "native", Evidence: "deadLetter",
		Deadline: noon, DeadLetteredTime: noon.Add(14 * time.Millisecond), Labels: map[string]string{"team": "payments"},
	}}
	core, logged := observer.New(zap.DebugLevel)
	if err := NewLog(zap.New(core)).Alert(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	all := logged.All()
	if len(all) != 2 || all[0].Level != zap.WarnLevel || all[1].Level != zap.DebugLevel {
		t.Fatalf("logged %+v, want a warning, and at debug the event", all)
	}
	want := map[string]any{
		"work_queue": "events/Subscriptions/audit", "message_id": "order-1", "sequence_number": int64(17), "deadline": noon,
		"verdict": "missed", "strategy": "native", "evidence": "deadLetter", "lag": 14 * time.Millisecond,
		"labels": map[string]string{"team": "payments"},
	}
	if diff := cmp.Diff(want, all[0].ContextMap()); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if got := all[1].Context; len(got) != 1 || !reflect.DeepEqual(got[0].Interface, any(e)) {
		t.Errorf("logged %+v at debug, want the event", got)
	}
}
