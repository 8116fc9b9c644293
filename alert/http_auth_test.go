// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// authorized is a server that answers 403 and repeats the request, and hands over its headers.
func authorized(t *testing.T, start func(http.Handler) *httptest.Server) (srv *httptest.Server, headers chan http.Header) {
	t.Helper()
	headers = make(chan http.Header, 1)
	srv = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		w.WriteHeader(http.StatusForbidden)
		if err := r.Header.Write(w); err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte(r.URL.String()))
	}))
	t.Cleanup(srv.Close)
	return srv, headers
}

func TestCredentialsAreSentAndNotShown(t *testing.T) {
	srv, headers := authorized(t, httptest.NewServer)
	for name, tt := range map[string]struct {
		cfg  HTTP
		want string // Authorization
	}{
		"bearer": {HTTP{BearerToken: "hunter2-token"}, "Bearer hunter2-token"},
		"basic":  {HTTP{Username: "overdue", Password: "hunter2"}, "Basic b3ZlcmR1ZTpodW50ZXIy"},
		"header": {HTTP{Headers: map[string]string{"authorization": "Key hunter2"}}, "Key hunter2"},
		"none":   {HTTP{}, ""},
	} {
		tt.cfg.URL = srv.URL + "/hunter2?sig=hunter2"
		if tt.cfg.Headers == nil {
			tt.cfg.Headers = map[string]string{"x-api-key": "hunter2 & co", "X-Env": "prod"}
		}
		a, err := NewWebhook("", tt.cfg)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err = a.Alert(t.Context(), someEvent())
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "b3ZlcmR1ZTpod") || !strings.Contains(err.Error(), "403 Forbidden") {
			t.Errorf("%s: Alert = %v, want 403 and no secret", name, err)
		}
		h := <-headers
		if got := h.Get("Authorization"); got != tt.want {
			t.Errorf("%s: Authorization = %q, want %q", name, got, tt.want)
		}
		if name != "header" && (h.Get("X-Api-Key") != "hunter2 & co" || h.Get("X-Env") != "prod") {
			t.Errorf("%s: headers = %v, want those of the configuration", name, h)
		}
	}
}

func TestHeadersThatCannotBeSentAreRefused(t *testing.T) {
	many := map[string]string{}
	for i := range maxHeaders + 1 {
		many["x-"+strings.Repeat("a", i+1)] = "v"
	}
	for want, cfg := range map[string]HTTP{
		`headers: "a b" is not the name`:                 {Headers: map[string]string{"a b": "hunter2"}},
		`headers: "" is not the name`:                    {Headers: map[string]string{"": "hunter2"}},
		"headers: Overdue sets Content-Type itself":      {Headers: map[string]string{"content-type": "hunter2"}},
		"headers: Overdue sets Webhook-Signature itself": {Headers: map[string]string{"webhook-signature": "hunter2"}},
		"headers: Overdue sets Host itself":              {Headers: map[string]string{"host": "hunter2"}},
		"headers: X-A is there twice":                    {Headers: map[string]string{"x-a": "hunter2", "X-A": "hunter2"}},
		"headers: the value of X-A has a control":        {Headers: map[string]string{"x-a": "hunter2\r\nX-B: 1"}},
		"headers: the value of X-A has 0 bytes":          {Headers: map[string]string{"x-a": ""}},
		"headers: there are 33 headers":                  {Headers: many},
		"bearerToken: the token has a space":             {BearerToken: "hunter2 x"},
		"bearerToken: there is a username or a header":   {BearerToken: "hunter2", Username: "a"},
		"username: there is a header Authorization":      {Username: "a", Headers: map[string]string{"authorization": "hunter2"}},
		"username: it has a colon":                       {Username: "a:b", Password: "hunter2"},
	} {
		cfg.URL = "http://localhost/"
		_, err := NewWebhook("", cfg)
		bad := (*SettingError)(nil)
		if !errors.As(err, &bad) || !strings.HasPrefix(bad.Key+": "+bad.Error(), "webhook."+want) || strings.Contains(bad.Error(), "hunter2") {
			t.Errorf("NewWebhook = %v, want a SettingError with %q and no secret", err, want)
		}
	}
}

func TestAPrivateAuthorityIsTrustedWhereItIsNamed(t *testing.T) {
	srv, headers := authorized(t, httptest.NewTLSServer)
	roots := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	for name, tt := range map[string]struct {
		roots string
		want  string
	}{
		"named": {roots, "403 Forbidden"}, "not named": {"", "certificate"},
	} {
		a, err := NewAlertmanager("", AlertmanagerConfig{HTTP: HTTP{URL: srv.URL, Roots: tt.roots}}, Text{})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Notify(t.Context(), firing()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Notify = %v, want %q", name, err, tt.want)
		}
	}
	<-headers
	if _, err := NewWebhook("", HTTP{URL: srv.URL, Roots: "hunter2"}); err == nil || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("NewWebhook with other text than PEM = %v, want an error", err)
	}
}
