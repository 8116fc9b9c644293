// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"overdue/alert"
	"overdue/monitor/search"
	"overdue/scheduler"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
)

func someEvent() alert.Event {
	w := &Worker{cfg: Config{Namespace: "contoso.servicebus.windows.net"}}
	return w.eventOf("orders", &watch{
		ref: scheduler.Reference{MessageID: "m-1", SessionID: "s"},
		missed: &scheduler.Missed{
			SequenceNumber: 7, EnqueuedTime: noon, Deadline: noon.Add(time.Second), DeadLetteredTime: noon.Add(1025 * time.Millisecond),
			DeadLetterReason: search.ReasonExpired, Strategy: strategyNative, CorrelationID: "c", DeliveryCount: 2,
		},
	})
}

func TestEventIsAValidCloudEvent(t *testing.T) {
	body, err := json.Marshal(someEvent())
	if err != nil {
		t.Fatal(err)
	}
	var ce cloudevents.Event
	if err := json.Unmarshal(body, &ce); err != nil {
		t.Fatalf("the CloudEvents SDK cannot read it: %v\n%s", err, body)
	}
	if err := ce.Validate(); err != nil {
		t.Errorf("the CloudEvents SDK finds it invalid: %v", err)
	}
	if ce.Type() != "overdue.deadline.missed" || ce.Source() != "sb://contoso.servicebus.windows.net/orders" || ce.Subject() != "m-1" {
		t.Errorf("type %q, source %q, subject %q", ce.Type(), ce.Source(), ce.Subject())
	}
	var data map[string]any
	if err := ce.DataAs(&data); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"entity": "orders", "messageId": "m-1", "sessionId": "s", "sequenceNumber": 7.0, "enqueuedTime": "2026-01-31T12:00:00Z",
		"deadline": "2026-01-31T12:00:01Z", "deadLetteredTime": "2026-01-31T12:00:01.025Z", "lagMs": 25.0, "strategy": "native",
		"deadLetterReason": "TTLExpiredException", "correlationId": "c", "deliveryCount": 2.0, "deadlineKind": "received",
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestNotifiedEventsDropTheOldest(t *testing.T) {
	var events notifiedEvents
	for i := range maxNotified + 10 {
		begun, first := events.begin(fmt.Sprint(i))
		if !first {
			t.Fatalf("event %d is taken for notified", i)
		}
		events.end(fmt.Sprint(i), begun, nil, nil)
	}
	if events.has("9") || !events.has("10") || !events.has(fmt.Sprint(maxNotified+9)) {
		t.Error("want the oldest ten forgotten and no others")
	}
	if begun, first := events.begin("11"); first || begun != alreadyNotified {
		t.Errorf("an event that was notified begins again: first %v", first)
	}
}

func TestAnEventThatNoSinkAcceptedBeginsAgain(t *testing.T) {
	var events notifiedEvents
	begun, _ := events.begin("e")
	joined, first := events.begin("e")
	if first || joined != begun {
		t.Error("an event that is being notified begins again")
	}
	noTaker := errors.New("no taker")
	events.end("e", begun, nil, noTaker)
	if <-joined.done; !errors.Is(joined.err, noTaker) {
		t.Errorf("the caller that joined the notification gets %v, want %v", joined.err, noTaker)
	}
	if _, first := events.begin("e"); !first {
		t.Error("an event that found no taker does not begin again")
	}
}
