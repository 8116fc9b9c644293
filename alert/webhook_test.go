// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"

	"overdue/internal/pace"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func someEvent() Event {
	return Event{
		ID: IDOf("orders", 7, noon), Type: TypeMissed, Source: "sb://n/orders", Subject: "m-1", Time: noon,
		Data: EventData{Entity: "orders", MessageID: "m-1", SequenceNumber: 7, EnqueuedTime: noon},
	}
}

func TestEventIDIsOneForEachMessage(t *testing.T) {
	id := IDOf("q", 7, noon)
	for name, other := range map[string]string{
		"queue": IDOf("p", 7, noon), "number": IDOf("q", 8, noon), "time": IDOf("q", 7, noon.Add(time.Millisecond)),
	} {
		if other == id {
			t.Errorf("another %s gives the same id", name)
		}
	}
	for _, entity := range []string{"q", "Q"} { // names of entities have no case
		if again := IDOf(entity, 7, noon); again != id {
			t.Errorf("the same message has ids %s and %s", id, again)
		}
	}
}

func TestANamespaceIsWrittenInOneWay(t *testing.T) {
	for address, want := range map[string]string{
		"contoso.servicebus.windows.net": "contoso.servicebus.windows.net", "Contoso.ServiceBus.windows.net:5671": "contoso.servicebus.windows.net",
		"contoso.servicebus.windows.net.": "contoso.servicebus.windows.net", "contoso.servicebus.windows.net:443": "contoso.servicebus.windows.net",
		"LOCALHOST:45751": "localhost:45751", "localhost": "localhost", "[::1]:5671": "[::1]", "[::1]:5672": "[::1]:5672",
	} {
		if got := NamespaceOf(address); got != want {
			t.Errorf("NamespaceOf(%q) = %q, want %q", address, got, want)
		}
	}
	if got := SourceOf("N:5671", "orders"); got != "sb://n/orders" {
		t.Errorf("SourceOf = %q, want sb://n/orders", got)
	}
	if got := SourceOf("N", ""); got != "sb://n" {
		t.Errorf("SourceOf the namespace = %q, want sb://n", got)
	}
}

func TestWebhook(t *testing.T) {
	after := func(want time.Duration) func(error) bool {
		return func(err error) bool {
			var after *backoff.RetryAfterError
			return errors.As(err, &after) && after.Duration.Round(100*time.Millisecond) == want && strings.Contains(err.Error(), "alert: webhook at 127.0.0.1:")
		}
	}
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
		{http.StatusTooManyRequests, "3", after(3 * time.Second)},
		{http.StatusServiceUnavailable, "0", after(time.Second)},
		{http.StatusTooManyRequests, "9223372036854775807", after(time.Hour)},
		{http.StatusTooManyRequests, "1.5", after(1500 * time.Millisecond)},
		{http.StatusBadGateway, "7", after(7 * time.Second)},
		{http.StatusGatewayTimeout, "7", after(7 * time.Second)},
		{http.StatusInternalServerError, "7", after(7 * time.Second)},
		{http.StatusForbidden, "7", after(7 * time.Second)},
		{http.StatusServiceUnavailable, "Sat, 31 Jan 2026 12:00:30 GMT", after(31 * time.Second)},
		{http.StatusServiceUnavailable, "Sat, 31 Jan 2026 11:00:00 GMT", after(time.Second)},
		{http.StatusServiceUnavailable, "soon", func(err error) bool { return err != nil && !pace.IsRetryAfter(err) && !isPermanent(err) }},
		{http.StatusServiceUnavailable, "-1", func(err error) bool { return err != nil && !pace.IsRetryAfter(err) }},
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
				w.Header().Set("Date", noon.Format(http.TimeFormat)) // not the clock of this machine
				w.WriteHeader(tc.status)
			}))
			defer srv.Close()
			a, err := NewWebhook("", HTTP{URL: srv.URL + "/hook?token=hunter2"})
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

// Only what is a traceparent goes out as one.
func TestARequestAboutOneEventCarriesItsTrace(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var seen, body string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen, body = r.Header.Get("traceparent"), string(b)
	}))
	defer srv.Close()
	single, err := NewWebhook("", HTTP{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	grouped, err := NewWebhookNotifier("", HTTP{URL: srv.URL}, Text{})
	if err != nil {
		t.Fatal(err)
	}
	e := someEvent()
	for _, tt := range []struct{ of, want string }{{trace, trace}, {"", ""}, {"x\r\ny: z", ""}} {
		e.Traceparent = tt.of
		if err := single.Alert(t.Context(), e); err != nil || seen != tt.want {
			t.Errorf("an event with %q is posted with %q, %v; want %q", tt.of, seen, err, tt.want)
		}
		if got := strings.Contains(body, `"traceparent":"`+trace+`"`); got != (tt.want != "") {
			t.Errorf("an event with %q is posted as %s", tt.of, body)
		}
		m, err := eventMessage(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"traceparent", "Diagnostic-Id"} {
			if got, _ := m.ApplicationProperties[name].(string); got != tt.want {
				t.Errorf("an event with %q is sent with %s %q, want %q", tt.of, name, got, tt.want)
			}
		}
	}
	e.Traceparent = trace
	for n, want := range map[int]string{1: trace, 2: ""} {
		samples := slices.Repeat([]Event{e}, n)
		if err := grouped.Notify(t.Context(), Notification{Key: "k", Count: n, Samples: samples, Oldest: &e}); err != nil || seen != want {
			t.Errorf("a notification about %d events is posted with %q, %v; want %q", n, seen, err, want)
		}
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
	a, err := NewWebhook("", HTTP{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Alert(t.Context(), someEvent()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Alert = %v, want an error without the secret", err)
	}
	for _, bad := range []string{"", "hunter2", "ftp://hunter2/", "http://", "http://hunter2\x00/"} {
		if _, err := NewWebhook("", HTTP{URL: bad}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("NewWebhook(%q) = %v, want an error without the URL", bad, err)
		}
	}
}

func TestASinkThatDoesNotAnswerIsNamed(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	a, err := NewWebhook("", HTTP{URL: srv.URL, Timeout: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	want := "alert: webhook at " + strings.TrimPrefix(srv.URL, "http://") + ": no answer within 10ms"
	if err := a.Alert(t.Context(), someEvent()); err == nil || err.Error() != want {
		t.Errorf("Alert = %v, want %s", err, want)
	}
}

// CloudEvents 1.0: subject, if present, is not empty.
func TestAnEventAboutAMessageWithoutIDHasNoSubject(t *testing.T) {
	for _, id := range []string{"", "m-1"} {
		e := someEvent()
		e.Subject, e.Data.MessageID = id, id
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if subject, there := got["subject"]; there != (id != "") || there && subject != id {
			t.Errorf("subject of an event about %q = %v, %v", id, subject, there)
		}
	}
}
