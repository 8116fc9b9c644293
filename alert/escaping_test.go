// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/json"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"reflect"
	"strings"
	"testing"

	"overdue/internal/escape"
)

// hostileText is what a terminal would obey and a reader not see, or take for lines of ours.
const hostileText = "a\nResolved: b\r\t\x00\x1b[31m\x7f\u0080\u0085\u009b31m\u009f\ufeff\u2028\u2029\u202e\u2066z"

// fill makes every text in v hostile, whatever it is called: a new one is not forgotten.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		fill(v.Elem())
	case reflect.String:
		v.SetString(hostileText)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			v.SetMapIndex(k, reflect.ValueOf(hostileText))
		}
	}
}

func hostilePage() Notification {
	p := firing()
	key := p.Key
	fill(reflect.ValueOf(&p))
	p.Key = key                   // a hash
	p.Labels["type"] = TypeMissed // ours
	return p
}

// Templates can name every text of an event, so each must be visible.
func TestNoTextOfANotificationIsForgotten(t *testing.T) {
	p := hostilePage()
	body, err := json.Marshal(p.shown(escape.Text))
	if err != nil {
		t.Fatal(err)
	}
	var decoded map[string]any
	if err := json.Unmarshal(body, &decoded); err != nil {
		t.Fatal(err)
	}
	for _, text := range seen(decoded) {
		if text != escape.Text(text) {
			t.Errorf("%q is shown as it came", text)
		}
	}
	if p.Oldest.Subject != hostileText || p.Samples[0].Subject != hostileText || p.Labels["entity"] != hostileText {
		t.Error("the notification itself has changed")
	}
}

// seen collects the texts of decoded JSON, but what programs read as it is.
func seen(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			all = append(all, seen(e)...)
		}
	case map[string]any:
		for name, e := range v {
			if name != "event" {
				all = append(append(all, name), seen(e)...)
			}
		}
	}
	return all
}

// A post hides no text: neither the bytes on the wire nor the text that the service shows contain
// invisible marks.
func TestSinksHideNothing(t *testing.T) {
	bodies := make(chan []byte, 1)
	titles := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- b
		titles <- r.Header.Get("Title")
		_, _ = io.WriteString(w, "{}")
	}))
	defer srv.Close()
	words, err := NewText("{{with .Oldest}}{{.Subject}}{{end}} {{.Labels.entity}} {{.Source}}", "{{range .Samples}}{{.Data.SessionID}}\n\t{{.Data.DeadLetterReason}}{{end}}")
	if err != nil {
		t.Fatal(err)
	}
	cfg := HTTP{URL: srv.URL}
	for _, text := range []Text{{}, words} {
		for name, make := range map[string]func() (Notifier, error){
			"webhook":      func() (Notifier, error) { return NewWebhookNotifier("", cfg, text) },
			"alertmanager": func() (Notifier, error) { return NewAlertmanager("", AlertmanagerConfig{HTTP: cfg}, text) },
			"slack":        func() (Notifier, error) { return NewChat("slack", "", cfg, text) },
			"teams":        func() (Notifier, error) { return NewChat("teams", "", cfg, text) },
			"pagerduty":    func() (Notifier, error) { return NewPagerDuty("", PagerDutyConfig{HTTP: cfg, RoutingKey: "r"}, text) },
			"shoutrrr": func() (Notifier, error) {
				return NewShoutrrr("", "ntfy://"+strings.TrimPrefix(srv.URL, "http://")+"/topic?scheme=http", text)
			},
		} {
			a, err := make()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []Notification{hostilePage(), {Key: "k", Source: hostileText, Labels: map[string]string{"entity": hostileText}, Resolved: true, Total: 1}} {
				if p.Resolved && text != (Text{}) {
					continue
				}
				if err := a.Notify(t.Context(), p); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				body, title := <-bodies, <-titles
				if hidden := escape.Hidden(append(body, title...)); hidden != "" {
					t.Errorf("%s posts %s", name, hidden)
				}
				var decoded any
				if json.Unmarshal(body, &decoded) != nil {
					decoded = string(body) // ntfy takes text
				}
				for _, s := range append(seen(decoded), title) {
					if hidden := escape.Hidden([]byte(s)); hidden != "" || strings.Contains(s, "\nResolved: b") {
						t.Errorf("%s shows %s in %q", name, hidden, s)
					}
				}
				// A card of Teams is Markdown, with two backslashes for one.
				if all := strings.ReplaceAll(strings.Join(append(seen(decoded), title), " "), `\\`, `\`); !strings.Contains(all, `\u0080\u0085`) {
					t.Errorf("%s does not show the id: %s", name, all)
				}
			}
		}
	}
}

func TestEventsHideNothingAndStayWhatTheyAre(t *testing.T) {
	e := Event{Data: EventData{Labels: map[string]string{"team": ""}}}
	fill(reflect.ValueOf(&e))
	bodies := make(chan []byte, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- b
	}))
	defer srv.Close()
	a, err := NewWebhook("", HTTP{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Alert(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	m, err := eventMessage(e)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"webhook": <-bodies, "servicebus": m.GetData()} {
		if hidden := escape.Hidden(body); hidden != "" {
			t.Errorf("%s sends %s", name, hidden)
		}
		var got struct {
			Subject string
			Data    EventData
		}
		if err := json.Unmarshal(body, &got); err != nil || got.Subject != hostileText || !reflect.DeepEqual(got.Data, e.Data) {
			t.Errorf("%s sends %+v, %v; a program should read what the message has", name, got, err)
		}
	}
}

func TestMailHidesNothing(t *testing.T) {
	port, mails := mailServer(t, "250 ok")
	a, err := NewEmail("", EmailConfig{Host: "127.0.0.1", Port: port, Security: noTLS, From: "overdue@example.com", To: []string{"a@example.com"}}, Text{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Notify(t.Context(), hostilePage()); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(<-mails, "\n") // after RCPT
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Header.Get("Content-Transfer-Encoding"); got != "quoted-printable" {
		t.Fatalf("the body is %q, want it quoted-printable", got)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		t.Fatal(err)
	}
	read := subject + "\n" + strings.ReplaceAll(string(body), "\r\n", "\n")
	if hidden := escape.Hidden([]byte(read)); hidden != "" || strings.Contains(read, "\nResolved: b") {
		t.Errorf("the mail has %s:\n%s", hidden, read)
	}
	if !strings.Contains(subject, `\u0085\u009b31m`) || strings.Count(read, `\u009b31m`) < 3 {
		t.Errorf("the mail does not show the ids:\n%s", read)
	}
}
