// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"

	"github.com/google/go-cmp/cmp"
)

// hooked is a server that answers with 202 and hands over what was posted, and the path.
func hooked(t *testing.T) (url string, posted func() (path string, body any)) {
	t.Helper()
	got := make(chan func() (string, any), 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var body any
		if err := json.Unmarshal(b, &body); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s of %q as %q: %v", r.Method, b, r.Header.Get("Content-Type"), err)
		}
		got <- func() (string, any) { return r.URL.Path, body }
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() (string, any) { return (<-got)() }
}

// valueAt is what lies in v under keys and indexes.
func valueAt(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok || m[p] == nil {
				t.Errorf("%v has no %q", v, p)
				return nil
			}
			v = m[p]
		case int:
			l, ok := v.([]any)
			if !ok || p >= len(l) {
				t.Errorf("%v has no element %d", v, p)
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func firing() Notification {
	e := someEvent()
	e.Data.Deadline, e.Data.SessionID, e.Data.CorrelationID = noon.Add(-time.Second), "s", "c"
	return Notification{
		Key: "overdue-k", Source: "sb://n", Labels: map[string]string{"type": TypeMissed, "entity": "orders"},
		Count: 3, Total: 10, Since: noon.Add(-time.Hour), Last: noon, Oldest: &e, WorstLag: 25 * time.Millisecond, Samples: []Event{e},
	}
}

func resolved() Notification {
	p := firing()
	p.Resolved, p.Count, p.Oldest, p.WorstLag, p.Samples = true, 0, nil, 0, nil
	return p
}

const (
	firingTitle   = "3 more missed deadlines on orders, 10 since 2026-01-31 11:00:00Z"
	firingText    = "Namespace: n\nDead-lettered up to 25 ms after the deadline\n" + firingAdvice + "Messages, the earliest deadline first:\n- m-1, session s, due 2026-01-31 11:59:59Z, correlation id c\nand 2 more"
	firingAdvice  = "What to do: Check that a consumer of orders is running and keeps up. Then resubmit or purge the dead letters: overdue dlq list orders\n"
	resolvedTitle = "Resolved: 10 missed deadlines on orders, the last at 2026-01-31 12:00:00Z"
)

func TestDefaultWordingOfNotifications(t *testing.T) {
	one := firing()
	one.Count, one.Total = 1, 1
	reminder := firing()
	reminder.Count = 0
	for _, tc := range []struct {
		p    Notification
		want string
	}{
		{firing(), firingTitle},
		{resolved(), resolvedTitle},
		{one, "1 missed deadline on orders"},
		{reminder, "10 missed deadlines on orders since 2026-01-31 11:00:00Z"},
		{Notification{Source: "sb://n", Count: 2, Total: 2}, "2 events on n"},
		{Notification{Labels: map[string]string{"entity": "t", "subscription": "s"}, Count: 2, Total: 2}, "2 events on t/Subscriptions/s"},
	} {
		if got := tc.p.Title(); got != tc.want {
			t.Errorf("Title = %q, want %q", got, tc.want)
		}
	}
	p := firing()
	if got := p.Text(); got != firingText {
		t.Errorf("Text = %q, want %q", got, firingText)
	}
	text, err := NewText("{{.Total}}\n in {{.Labels.entity}}", "{{range .Samples}}{{.Subject}};{{end}}")
	if err != nil {
		t.Fatal(err)
	}
	if _, title, body, err := text.render(p); title != "10 in orders" || body != "m-1;" || err != nil {
		t.Errorf("with templates: %q, %q, %v", title, body, err)
	}
	for _, bad := range []string{"{{", "{{.Nothing}}", "{{.Oldest.Data.Nothing}}"} {
		if _, err := NewText(bad, ""); err == nil {
			t.Errorf("template %q was taken", bad)
		}
	}
}

func TestAlertmanager(t *testing.T) {
	url, posted := hooked(t)
	a, err := NewAlertmanager("", AlertmanagerConfig{HTTP: HTTP{URL: url + "/am/"}}, Text{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Notification{firing(), resolved()} {
		if err := a.Notify(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		path, body := posted()
		want := map[string]any{"alertname": "OverdueDeadlineMissed", "source": "sb://n", "entity": "orders", "severity": "critical"}
		if diff := cmp.Diff(want, valueAt(t, body, 0, "labels")); diff != "" || path != "/am/api/v2/alerts" {
			t.Errorf("labels at %s (-want +got):\n%s", path, diff)
		}
		if got := valueAt(t, body, 0, "startsAt"); got != "2026-01-31T11:00:00Z" {
			t.Errorf("startsAt = %v", got)
		}
	}
}

// The clock of an Alertmanager may be another than ours. Its alerts fire until it hears that they
// are resolved, however long this process or its namespace does not answer, and then they are
// resolved at once. It refuses an alert that ends before it starts.
func TestAnAlertmanagerGetsTimesByItsOwnClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, -90 * 24 * time.Hour} {
		for _, first := range []bool{false, true} { // whether the first that this process posts is resolved
			t.Run(fmt.Sprint(ahead, first), func(t *testing.T) {
				now := func() time.Time { return time.Now().Add(ahead) }
				var latest postableAlert
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Date", now().UTC().Format(http.TimeFormat))
					var all []postableAlert
					if err := json.NewDecoder(r.Body).Decode(&all); err != nil || len(all) != 1 || all[0].EndsAt.Before(all[0].StartsAt) {
						http.Error(w, fmt.Sprintf("%v: %+v", err, all), http.StatusBadRequest)
						return
					}
					latest = all[0]
				}))
				defer srv.Close()
				a, err := NewAlertmanager("", AlertmanagerConfig{HTTP: HTTP{URL: srv.URL}}, Text{})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range []Notification{firing(), resolved()} {
					p.Since = time.Now().Add(-time.Minute)
					if first && !p.Resolved {
						continue
					}
					if err := a.Notify(t.Context(), p); err != nil {
						t.Fatal(err)
					}
					if fires := latest.EndsAt.After(now()); fires == p.Resolved || latest.StartsAt.After(now()) {
						t.Errorf("resolved %v: posted %+v to one whose clock says %v", p.Resolved, latest, now())
					}
					if !p.Resolved && latest.EndsAt.Before(now().Add(6*24*time.Hour)) {
						t.Errorf("the alert ends by itself at %v", latest.EndsAt)
					}
				}
			})
		}
	}
}

// Some ask for a token in the query, which belongs behind the path.
func TestTheURLOfAnAlertmanagerKeepsItsQuery(t *testing.T) {
	for url, want := range map[string]string{
		"http://am:9093":               "http://am:9093/api/v2/alerts",
		"http://am:9093/":              "http://am:9093/api/v2/alerts",
		"http://am:9093/am?token=a%26": "http://am:9093/am/api/v2/alerts?token=a%26",
		"http://am/x/api/v2/alerts?y":  "http://am/x/api/v2/alerts?y",
		"https://am/?a=b&c":            "https://am/api/v2/alerts?a=b&c",
		"https://u:p@am/a%2Fb/?x":      "https://u:p@am/a%2Fb/api/v2/alerts?x",
	} {
		a, err := NewAlertmanager("", AlertmanagerConfig{HTTP: HTTP{URL: url}}, Text{})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.(*alertmanager).url; got != want {
			t.Errorf("%s: posts to %s, want %s", url, got, want)
		}
	}
}

func TestPagerDuty(t *testing.T) {
	url, posted := hooked(t)
	a, err := NewPagerDuty("", PagerDutyConfig{HTTP: HTTP{URL: url}, RoutingKey: "r"}, Text{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		p             Notification
		action, title string
	}{{firing(), "trigger", firingTitle}, {resolved(), "resolve", resolvedTitle}} {
		if err := a.Notify(t.Context(), tc.p); err != nil {
			t.Fatal(err)
		}
		_, body := posted()
		for path, want := range map[string]any{
			"routing_key": "r", "dedup_key": "overdue-k", "event_action": tc.action,
		} {
			if got := valueAt(t, body, path); got != want {
				t.Errorf("%s = %v, want %v", path, got, want)
			}
		}
		for path, want := range map[string]any{
			"summary": tc.title, "source": "sb://n", "severity": "error", "timestamp": "2026-01-31T12:00:00Z", "component": "orders", "class": TypeMissed,
		} {
			if got := valueAt(t, body, "payload", path); got != want {
				t.Errorf("payload.%s = %v, want %v", path, got, want)
			}
		}
	}
	if _, err := NewPagerDuty("", PagerDutyConfig{}, Text{}); err == nil {
		t.Error("made without a routing key")
	}
}

func TestChats(t *testing.T) {
	hostile := firing()
	hostile.Labels = map[string]string{"type": TypeMissed, "entity": "<!channel> *[x](http://x)*"}
	for _, tc := range []struct {
		kind        string
		title, text []any
		hostile     string
	}{
		{"slack", []any{"blocks", 0, "text", "text"}, []any{"blocks", 1, "text", "text"}, "3 more missed deadlines on <!channel> *[x](http://x)*"},
		{"teams", []any{"attachments", 0, "content", "body", 0, "text"}, []any{"attachments", 0, "content", "body", 1, "text"}, `3 more missed deadlines on &lt;!channel&gt; \*\[x\](http://x)\*`},
	} {
		url, posted := hooked(t)
		c, err := NewChat(tc.kind, "", HTTP{URL: url}, Text{})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name(), func(t *testing.T) {
			if err := c.Notify(t.Context(), firing()); err != nil {
				t.Fatal(err)
			}
			_, body := posted()
			if got := valueAt(t, body, tc.title...); got != firingTitle {
				t.Errorf("title = %v, want %q", got, firingTitle)
			}
			if got := valueAt(t, body, tc.text...); !strings.HasPrefix(got.(string), "Namespace: n") {
				t.Errorf("text = %v", got)
			}
			if err := c.Notify(t.Context(), hostile); err != nil {
				t.Fatal(err)
			}
			_, body = posted()
			if got := valueAt(t, body, tc.title...).(string); !strings.HasPrefix(got, tc.hostile) {
				t.Errorf("a hostile name is shown as %q, want %q", got, tc.hostile)
			}
			if fallback, ok := body.(map[string]any)["text"].(string); ok && strings.Contains(fallback, "<!channel>") {
				t.Errorf("a hostile name alerts the channel: %q", fallback)
			}
			if err := c.Notify(t.Context(), resolved()); err != nil {
				t.Fatal(err)
			}
			_, body = posted()
			if got := valueAt(t, body, tc.title...); got != resolvedTitle {
				t.Errorf("title = %v, want %q", got, resolvedTitle)
			}
		})
	}
}

func TestGroupedWebhookPostsLikeAlertmanager(t *testing.T) {
	url, posted := hooked(t)
	a, err := NewWebhookNotifier("hook", HTTP{URL: url}, Text{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Notify(t.Context(), firing())); err != nil {
		t.Fatal(err)
	}
	_, body := posted()
	for path, want := range map[string]any{"version": "4", "status": "firing", "groupKey": "overdue-k", "receiver": "hook", "truncatedAlerts": 2.0} {
		if got := valueAt(t, body, path); got != want {
			t.Errorf("%s = %v, want %v", path, got, want)
		}
	}
	if got := valueAt(t, body, "alerts", 0, "labels", "message_id"); got != "m-1" {
		t.Errorf("message_id of the first alert = %v", got)
	}
	if got := valueAt(t, body, "alerts", 0, "event", "data", "entity"); got != "orders" {
		t.Errorf("entity in the event of the first alert = %v", got)
	}
	if err := a.Notify(t.Context(), resolved()); err != nil {
		t.Fatal(err)
	}
	_, body = posted()
	if got := valueAt(t, body, "alerts", 0, "status"); got != "resolved" {
		t.Errorf("status of the alert in the end = %v", got)
	}
}

func TestServiceBusSendsCloudEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "missed"}} })
		a := NewServiceBus("", ns.Links(t), "missed")
		e := someEvent()
		if err := a.Alert(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		r, err := ns.Client(t).NewReceiverForQueue("missed", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.ReceiveMessages(t.Context(), 1, nil)
		if err != nil || len(ms) != 1 {
			t.Fatalf("ReceiveMessages = %d, %v", len(ms), err)
		}
		var got Event
		if err := json.Unmarshal(ms[0].Body, &got); err != nil || got.ID != e.ID || ms[0].MessageID != e.ID || *ms[0].Subject != TypeMissed {
			t.Errorf("received %q with id %s, %v", ms[0].Body, ms[0].MessageID, err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
