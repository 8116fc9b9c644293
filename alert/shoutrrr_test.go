// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/incident/pagerduty"
)

func TestShoutrrrRefusesServicesThatASinkReplaces(t *testing.T) {
	for service, sink := range map[string]string{"smtp": "email", "generic": "webhook", "logger": "log"} {
		_, err := NewShoutrrr("", service+"://host/", Text{})
		if want := "the service " + service + " is not supported; use the sink " + sink; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewShoutrrr(%s://host/) = %v, want an error with %q", service, err, want)
		}
	}
}

func TestShoutrrrNamesTheServicesItKnows(t *testing.T) {
	_, err := NewShoutrrr("", "nosuch://host/", Text{})
	if err == nil || !strings.Contains(err.Error(), "there is no service nosuch; use one of bark, discord, ") || strings.Contains(err.Error(), "smtp") {
		t.Errorf("NewShoutrrr(nosuch://host/) = %v, want an error that names bark, discord and others, without smtp", err)
	}
}

func TestShoutrrrRefusesURLsThatAServiceCannotConvert(t *testing.T) {
	for url, want := range map[string]string{
		"":                        "needs a URL such as ntfy://host/topic",
		"://":                     "needs a URL such as ntfy://host/topic",
		"telegram+https://host/x": "takes no URL of the form telegram+https://",
	} {
		if _, err := NewShoutrrr("", url, Text{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewShoutrrr(%q) = %v, want an error with %q", url, err, want)
		}
	}
}

// Slack, Mattermost and Discord notify a whole channel when a text says so. A template may, and a
// message id may not.
func TestAMessageIDMentionsNobodyAndHidesNoLink(t *testing.T) {
	titles, texts := make(chan string, 1), make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		titles <- r.Header.Get("Title")
		texts <- string(b)
		_, _ = w.Write([]byte("{}"))
	}))
	defer srv.Close()
	text, err := NewText("@oncall: {{.Where}}", "<!here> {{range .Samples}}{{.Subject}}{{end}}")
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewShoutrrr("", "ntfy://"+strings.TrimPrefix(srv.URL, "http://")+"/topic?scheme=http", text)
	if err != nil {
		t.Fatal(err)
	}
	p := firing()
	p.Labels["entity"] = "@channel"
	p.Samples[0].Subject = "a@example.com, @all <!here> <@U1> <#C1> a < b [x](y) <https://y|x>"
	if err := a.Notify(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got, want := <-titles, "@oncall: @ channel"; got != want {
		t.Errorf("title = %q, want %q", got, want)
	}
	if got, want := <-texts, "<!here> a@example.com, @ all < !here> <@ U1> < #C1> a < b [x] (y) < https://y|x>"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
}

// A service that is given a title and knows none fails, or leaves it out.
func TestShoutrrrServicesWithoutTitlesGetItInTheText(t *testing.T) {
	a, err := NewShoutrrr("", "pagerduty://events.pagerduty.com/0123456789abcdef0123456789abcdef", Text{})
	if err != nil {
		t.Fatal(err)
	}
	var posted []byte
	a.(*shoutrrr).sender.(*pagerduty.Service).SetHTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		posted, err = io.ReadAll(r.Body)
		return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, err
	})})
	p := firing()
	if err := a.Notify(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var event struct{ Payload struct{ Summary string } }
	if err := json.Unmarshal(posted, &event); err != nil || !strings.HasPrefix(event.Payload.Summary, p.Title()+"\n") {
		t.Errorf("posted %s, %v; want a summary that begins with %q", posted, err, p.Title())
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
