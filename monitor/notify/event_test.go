// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/json"
	"testing"
	"time"

	"overdue/alert"
	"overdue/scheduler"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func someEvent() alert.Event {
	return EventOf("contoso.servicebus.windows.net", "orders", &scheduler.Reference{MessageID: "m-1", SessionID: "s"}, &scheduler.Missed{
		SequenceNumber: 7, EnqueuedTime: noon, Deadline: noon.Add(time.Second), DeadLetteredTime: noon.Add(1025 * time.Millisecond),
		DeadLetterReason: "TTLExpiredException", Strategy: "native", CorrelationID: "c", DeliveryCount: 2,
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

// A companion can be written by anybody who may send to the monitor queue.
func TestANoticeIsABlindTime(t *testing.T) {
	for notice, want := range map[string]bool{
		`{"from":"2026-01-31T12:00:00Z","to":"2026-01-31T12:02:00Z","reason":"r","deadlines":1,"entities":[]}`: true,
		`{"from":"2026-01-31T12:02:00Z","to":"2026-01-31T12:00:00Z"}`:                                          false,
		`{"from":1}`: false,
		`{}`:         false,
		``:           false,
	} {
		if got := IsBlind([]byte(notice)); got != want {
			t.Errorf("%s is a blind time: %t, want %t", notice, got, want)
		}
		e := EventOf("overdue.test", "overdue-monitor", &scheduler.Reference{MessageID: "host-1"}, &scheduler.Missed{Type: alert.TypeBlind, Notice: []byte(notice)})
		if isTold := e.Blind != nil && e.Subject == "host-1" && e.Source == "sb://overdue.test"; isTold != want {
			t.Errorf("%s is the event %+v", notice, e)
		}
	}
}
