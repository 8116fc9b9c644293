// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"overdue/scheduler"

	"github.com/cenkalti/backoff/v5"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
)

func someEvent() Event {
	w := &Worker{cfg: Config{Namespace: "contoso.servicebus.windows.net"}}
	return w.event("orders", &watch{
		ref: scheduler.Reference{MessageID: "m-1", SessionID: "s"},
		missed: &scheduler.Missed{
			SequenceNumber: 7, EnqueuedTime: noon, Deadline: noon.Add(time.Second), DeadLetteredTime: noon.Add(1025 * time.Millisecond),
			DeadLetterReason: reasonExpired, Strategy: strategyNative, CorrelationID: "c", DeliveryCount: 2,
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
		"deadLetterReason": "TTLExpiredException", "correlationId": "c", "deliveryCount": 2.0,
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestEventIDIsOneForEachMessage(t *testing.T) {
	id := eventID("sb://n/q", 7, noon)
	for name, other := range map[string]string{
		"queue": eventID("sb://n/p", 7, noon), "number": eventID("sb://n/q", 8, noon), "time": eventID("sb://n/q", 7, noon.Add(time.Millisecond)),
	} {
		if other == id {
			t.Errorf("another %s gives the same id", name)
		}
	}
	for _, source := range []string{"sb://n/q", "sb://N/Q"} { // names of entities have no case
		if again := eventID(source, 7, noon); again != id {
			t.Errorf("the same message has ids %s and %s", id, again)
		}
	}
}

func TestToldEventsForgetTheOldest(t *testing.T) {
	var events toldEvents
	for i := range maxTold + 10 {
		begun, first := events.begin(fmt.Sprint(i))
		if !first {
			t.Fatalf("event %d is taken for told", i)
		}
		events.end(fmt.Sprint(i), begun, nil, nil)
	}
	if events.has("9") || !events.has("10") || !events.has(fmt.Sprint(maxTold+9)) {
		t.Error("want the oldest ten forgotten and no others")
	}
	if begun, first := events.begin("11"); first || begun != told {
		t.Errorf("an event that was told begins again: first %v", first)
	}
}

func TestAnEventThatFoundNoTakerBeginsAgain(t *testing.T) {
	var events toldEvents
	begun, _ := events.begin("e")
	joined, first := events.begin("e")
	if first || joined != begun {
		t.Error("an event that is being told begins again")
	}
	noTaker := errors.New("no taker")
	events.end("e", begun, nil, noTaker)
	if <-joined.done; !errors.Is(joined.err, noTaker) {
		t.Errorf("whoever waits for the telling gets %v, want %v", joined.err, noTaker)
	}
	if _, first := events.begin("e"); !first {
		t.Error("an event that found no taker does not begin again")
	}
}

func TestWebhook(t *testing.T) {
	for _, tc := range []struct {
		status     int
		retryAfter string
		want       func(error) bool
	}{
		{http.StatusOK, "", func(err error) bool { return err == nil }},
		{http.StatusAccepted, "", func(err error) bool { return err == nil }},
		{http.StatusInternalServerError, "", func(err error) bool { return err != nil && !isPermanent(err) }},
		{http.StatusBadRequest, "", isPermanent},
		{http.StatusGone, "", isPermanent},
		{http.StatusTooManyRequests, "3", func(err error) bool {
			var after *backoff.RetryAfterError
			return errors.As(err, &after) && after.Duration == 3*time.Second
		}},
		{http.StatusTooManyRequests, "", func(err error) bool { return err != nil && !isPermanent(err) }},
	} {
		t.Run(fmt.Sprint(tc.status, tc.retryAfter), func(t *testing.T) {
			var contentType, body string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				contentType, body = r.Header.Get("Content-Type"), string(b)
				if tc.retryAfter != "" {
					w.Header().Set("Retry-After", tc.retryAfter)
				}
				w.WriteHeader(tc.status)
			}))
			defer srv.Close()
			a, err := NewWebhook(WebhookConfig{URL: srv.URL + "/hook?token=hunter2"})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Alert(t.Context(), someEvent()); !tc.want(err) {
				t.Errorf("Alert = %v", err)
			}
			if !strings.HasPrefix(contentType, "application/cloudevents+json") || !strings.Contains(body, `"specversion":"1.0"`) {
				t.Errorf("posted %q as %q, want a structured CloudEvent", body, contentType)
			}
		})
	}
}

func isPermanent(err error) bool {
	var permanent *backoff.PermanentError
	return errors.As(err, &permanent)
}

func TestWebhookErrorsDoNotShowTheURL(t *testing.T) {
	srv := httptest.NewServer(nil)
	url := srv.URL + "/hook?token=hunter2"
	srv.Close()
	a, err := NewWebhook(WebhookConfig{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Alert(t.Context(), someEvent()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Alert = %v, want an error without the secret", err)
	}
	for _, bad := range []string{"", "hunter2", "ftp://hunter2/", "http://", "http://hunter2\x00/"} {
		if _, err := NewWebhook(WebhookConfig{URL: bad}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("NewWebhook(%q) = %v, want an error without the URL", bad, err)
		}
	}
}
