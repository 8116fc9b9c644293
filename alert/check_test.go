// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"overdue/internal/pace"
)

// statusServer answers each method with a status. It counts the alerts that it gets.
func statusServer(t *testing.T, status func(method string) int) (address string, alerts *atomic.Int32) {
	t.Helper()
	alerts = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch body, _ := io.ReadAll(r.Body); {
		case r.Method == http.MethodPost:
			alerts.Add(1)
		case len(body) > 0:
			t.Errorf("%s has a body of %d bytes, want none", r.Method, len(body))
		}
		if s := status(r.Method); s/100 == 3 {
			http.Redirect(w, r, "/login", s)
		} else {
			w.WriteHeader(s)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, alerts
}

func TestASinkIsAskedWithoutAnAlert(t *testing.T) {
	for name, tt := range map[string]struct {
		options, head int
		want          string // "": it passes
	}{
		"it takes anything":               {200, 200, ""},
		"it takes only alerts":            {405, 405, ""},
		"it knows no such methods":        {501, 501, ""},
		"it wants another body":           {400, 400, ""},
		"it has a route for alerts alone": {204, 404, ""},
		"its gateway refuses one method":  {403, 405, ""},
		"nobody takes requests there":     {404, 404, "it answers 404 Not Found"},
		"the hook is gone":                {410, 410, "it answers 410 Gone"},
		"the key is wrong":                {401, 401, "it answers 401 Unauthorized"},
		"the key has no right":            {403, 403, "it answers 403 Forbidden"},
		"it fails":                        {500, 500, "it answers 500 Internal Server Error"},
		"nothing stands behind its proxy": {503, 503, "it answers 503 Service Unavailable"},
		"it leads elsewhere":              {307, 307, "redirects are never followed"},
	} {
		t.Run(name, func(t *testing.T) {
			url, alerts := statusServer(t, func(method string) int {
				if method == http.MethodOptions {
					return tt.options
				}
				return tt.head
			})
			a, err := NewWebhook("hook", HTTP{URL: url + "/s3cr3t"})
			if err != nil {
				t.Fatal(err)
			}
			err = a.(checker).Check(t.Context())
			switch {
			case (err == nil) != (tt.want == ""), err != nil && !strings.Contains(err.Error(), tt.want):
				t.Errorf("Check = %v, want %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "s3cr3t"):
				t.Errorf("Check = %v, which has the secret of the URL", err)
			}
			if alerts.Load() > 0 {
				t.Error("it got an alert")
			}
		})
	}
}

// Only an alert shows what a sink thinks of alerts, and the next one that it takes shows that this
// has passed.
func TestASinkFailsFromAnAlertThatItRefusesToOneThatItTakes(t *testing.T) {
	var answer atomic.Int32 // to an alert
	url, _ := statusServer(t, func(method string) int {
		if method == http.MethodPost {
			return int(answer.Load())
		}
		return http.StatusMethodNotAllowed
	})
	a, err := NewWebhook("hook", HTTP{URL: url, BearerToken: "s3cr3t"})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		status int32
		want   string
	}{{500, "it did not take the last alert, 0s ago: alert: webhook at "}, {204, ""}, {403, "403 Forbidden"}, {200, ""}} {
		answer.Store(step.status)
		_ = a.Alert(t.Context(), Event{ID: "1"})
		if err := a.(checker).Check(t.Context()); (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("Check after an alert that was answered with %d = %v, want %q", step.status, err, step.want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = a.Alert(ended, Event{ID: "2"})
	if err := a.(checker).Check(t.Context()); err != nil {
		t.Errorf("Check after an alert that the process gave up = %v, want nil", err)
	}
}

func TestASinkThatAsksForPausesFailsIfItTakesNothingForLong(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	a, err := NewWebhook("hook", HTTP{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Alert(t.Context(), Event{}); !pace.IsRetryAfter(err) {
		t.Fatalf("Alert = %v, want a pause", err)
	}
	if err := a.(checker).Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want nil", err)
	}
	p := a.(*webhook).poster
	long := *p.last.Load()
	long.since = long.since.Add(-11 * time.Minute)
	p.last.Store(&long)
	if err := a.Alert(t.Context(), Event{}); !pace.IsRetryAfter(err) {
		t.Fatalf("Alert = %v, want a pause", err)
	}
	if err := a.(checker).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "did not take the last alert") {
		t.Errorf("Check = %v after eleven minutes without an alert taken, want that it fails", err)
	}
}

func TestAMailServerIsAskedWithoutAMail(t *testing.T) {
	port, mails := mailServer(t, "250 ok")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, tt := range map[string]struct {
		security string
		port     int
		want     string
	}{
		"it takes mail":      {noTLS, port, ""},
		"it has no TLS":      {startTLS, port, "STARTTLS"},
		"it does not answer": {noTLS, silent.Addr().(*net.TCPAddr).Port, "timeout"},
	} {
		a, err := NewEmail("", EmailConfig{Host: "127.0.0.1", Port: tt.port, Security: tt.security, From: "overdue@example.com", To: []string{"a@example.com"}, Timeout: 300 * time.Millisecond}, Text{})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.(checker).Check(t.Context()); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Check = %v, want %q", name, err, tt.want)
		}
	}
	if len(mails) > 0 {
		t.Error("it got a mail")
	}
}
