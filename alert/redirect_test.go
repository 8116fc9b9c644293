// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// misleading is a server that answers every request with a redirect to another one, which counts
// who was led there.
func misleading(t *testing.T) (host string, led *atomic.Int32) {
	t.Helper()
	led = &atomic.Int32{}
	internal := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	t.Cleanup(internal.Close)
	s := httptest.NewServer(http.RedirectHandler(internal.URL+"/quitquitquit", http.StatusTemporaryRedirect))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), led
}

// A sink that could lead this process elsewhere would reach what only this process can reach, such
// as its admin port.
func TestSinksFollowNoRedirect(t *testing.T) {
	pager := func(p Notifier, err error) (func(*testing.T) error, error) {
		return func(t *testing.T) error { return p.Notify(t.Context(), firing()) }, err
	}
	for name, make := range map[string]func(HTTP) (func(*testing.T) error, error){
		"webhook": func(c HTTP) (func(*testing.T) error, error) {
			a, err := NewWebhook("", c)
			return func(t *testing.T) error { return a.Alert(t.Context(), someEvent()) }, err
		},
		"grouped webhook": func(c HTTP) (func(*testing.T) error, error) { return pager(NewWebhookNotifier("", c, Text{})) },
		"alertmanager": func(c HTTP) (func(*testing.T) error, error) {
			return pager(NewAlertmanager("", AlertmanagerConfig{HTTP: c}, Text{}))
		},
		"slack": func(c HTTP) (func(*testing.T) error, error) { return pager(NewChat("slack", "", c, Text{})) },
		"teams": func(c HTTP) (func(*testing.T) error, error) { return pager(NewChat("teams", "", c, Text{})) },
		"pagerduty": func(c HTTP) (func(*testing.T) error, error) {
			return pager(NewPagerDuty("", PagerDutyConfig{HTTP: c, RoutingKey: "r"}, Text{}))
		},
	} {
		for _, client := range []*http.Client{nil, {}} {
			host, led := misleading(t)
			send, err := make(HTTP{URL: "http://" + host + "/secret", Client: client})
			if err != nil {
				t.Fatal(err)
			}
			err = send(t)
			if led.Load() != 0 || err == nil || !strings.Contains(err.Error(), host+" answered 307 Temporary Redirect, and redirects are never followed") {
				t.Errorf("%s: %v, and %d requests were led elsewhere; want an error that names %s and 307, and none", name, err, led.Load(), host)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error shows the path: %v", name, err)
			}
		}
	}
}

// Those whose URL can say HTTP; with and without a transport of their own.
func TestShoutrrrServicesFollowNoRedirect(t *testing.T) {
	for name, url := range map[string]string{
		"ntfy":       "ntfy://HOST/topic?scheme=http",
		"gotify":     "gotify://HOST/Aaa.bbb.ccc.ddd?disabletls=yes",
		"mattermost": "mattermost://HOST/token?disabletls=yes",
		"matrix":     "matrix://user:password@HOST/?disableTLS=yes&rooms=!room",
		"signal":     "signal://HOST/+11234567890/+10987654321?disabletls=yes",
		"bark":       "bark://:devicekey@HOST/?scheme=http",
	} {
		host, led := misleading(t)
		// Some ask when they are made.
		p, err := NewShoutrrr("", strings.Replace(url, "HOST", host, 1), Text{})
		if err == nil {
			err = p.Notify(t.Context(), firing())
		}
		if led.Load() != 0 || err == nil || !strings.Contains(err.Error(), "307 Temporary Redirect, and redirects are never followed") {
			t.Errorf("%s: %v, and %d requests were led elsewhere; want an error that says so, and none", name, err, led.Load())
		}
	}
}
