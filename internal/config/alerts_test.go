// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCredentialsOfSinksComeFromFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"token": "hunter2-token\n", "password": "hunter2\n", "secrets": "whsec_new\nwhsec_old\n", "headers": "X-Api-Key: hunter2: x\r\n\n  x-b:y\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.ReplaceAll(`
alerts:
  - webhook: {url: "https://h", bearerTokenFile: DIR/token, signingSecretFile: DIR/secrets, headers: {X-A: 1.10, X-C: true}, headersFile: DIR/headers}
  - alertmanager: {url: "https://a", username: overdue, passwordFile: DIR/password, labels: {version: 1.10, team: payments}}
`, "DIR", dir)
	c, err := load(t, text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, a := c.Alerts[0].Webhook, c.Alerts[1].Alertmanager
	if w.BearerToken != "hunter2-token" || a.Password != "hunter2" {
		t.Errorf("token and password = %q, %q, want those of the files", w.BearerToken, a.Password)
	}
	if diff := cmp.Diff([]string{"whsec_new", "whsec_old"}, strings.Fields(w.SigningSecret)); diff != "" {
		t.Errorf("signing secrets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"X-A": "1.10", "X-C": "true", "X-Api-Key": "hunter2: x", "x-b": "y"}, w.Headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"version": "1.10", "team": "payments"}, a.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	watched := strings.Join(c.Sources.Files(), " ")
	for _, name := range []string{"token", "password", "secrets", "headers"} {
		if !strings.Contains(watched, filepath.Join(dir, name)) {
			t.Errorf("files = %s, want %s among them", watched, name)
		}
	}
}

func TestCredentialsOfSinksAreNotShown(t *testing.T) {
	c, err := load(t, `
alerts:
  - webhook: {url: "https://h/hunter2", bearerToken: hunter2, signingSecret: hunter2, headers: {X-A: hunter2}}
  - alertmanager: {url: "https://h", username: overdue, password: hunter2, labels: {team: payments}}
`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	printed, err := c.Sources.YAML(false)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal(c.Sources.Redacted())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config print": string(printed), "/configz": string(shown)} {
		if strings.Contains(text, "hunter2") || !strings.Contains(text, "X-A") || !strings.Contains(text, "payments") {
			t.Errorf("%s shows a secret, or hides the name of a header or a label:\n%s", name, text)
		}
	}
}

func TestMistakesInCredentialsOfSinksNameTheirKey(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "text": "hunter2\n", "twice": "A: hunter2\nA: b\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		"bearerToken: a, bearerTokenFile: b":      "alerts[0].webhook needs one of bearerToken and bearerTokenFile",
		"bearerTokenFile: nowhere":                "alerts[0].webhook.bearerTokenFile: open nowhere",
		"signingSecretFile: DIR/empty":            "is empty; it has to hold the signingSecret",
		"username: a":                             "alerts[0].webhook needs one of password and passwordFile",
		"password: hunter2":                       "alerts[0].webhook has a password and no username",
		"authorityFile: DIR/text":                 "DIR/text holds no certificate in PEM",
		"authorityFile: DIR/empty":                "DIR/empty holds no certificate in PEM",
		"authorityFile: nowhere":                  "alerts[0].webhook.authorityFile: open nowhere",
		"headersFile: nowhere":                    "alerts[0].webhook.headersFile: open nowhere",
		"headersFile: DIR/text":                   "alerts[0].webhook.headersFile: line 1 of DIR/text has no colon",
		"headersFile: DIR/twice":                  "line 2 of DIR/twice has the header A again",
		"headersFile: DIR/twice, headers: {A: x}": "line 1 of DIR/twice has the header A again",
		"headers: [a]":                            "alerts[0].webhook.headers has to be a mapping",
		"headers: {A: [hunter2]}":                 "alerts[0].webhook.headers.A has to be a single value",
	} {
		config := strings.ReplaceAll("alerts:\n  - webhook: {url: \"https://h\", "+text+"}\n", "DIR", dir)
		_, err := load(t, config, nil, nil)
		if want = strings.ReplaceAll(want, "DIR", dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "overdue.yaml:2: ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q, the line, and no secret", text, err, want)
		}
	}
	if _, err := load(t, "alerts: [{webhook: {url: \"http://h\", authorityFile: "+dir+"/text}}]\n", nil, nil); err == nil || !strings.Contains(err.Error(), "the URL is not https") {
		t.Errorf("an authority without TLS: %v, want an error", err)
	}
}

// New content in the same file is a changed sink.
func TestARotatedSecretChangesItsSink(t *testing.T) {
	name := filepath.Join(t.TempDir(), "secret")
	read := func(text string) *Config {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := load(t, "alerts: [{webhook: {url: \"https://h\", signingSecretFile: "+name+"}}, {slack: {url: \"https://s\"}}]\n", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before, after := read("whsec_old\n"), read("whsec_new\nwhsec_old\n")
	if diff := cmp.Diff([]string{"alerts: webhook has changed"}, Changes(before, after)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestTheWordingOfNotificationsNeedsASinkThatGetsThem(t *testing.T) {
	for sink, want := range map[string]string{
		`webhook: {url: "https://h"}, title: x`:                         "alerts[0].title has no effect, since the sink gets single events and no notifications; set webhook.grouped: true, or remove it",
		`webhook: {url: "https://h"}, group: {wait: 10s}`:               "",
		`serviceBus: {entity: events}, links: {runbook: "https://w"}`:   "alerts[0].links.runbook has no effect, since the sink gets single events and no notifications; remove it",
		`webhook: {url: "https://h", grouped: true}, group: {wait: 1s}`: "",
		`slack: {url: "https://h"}, text: x`:                            "",
	} {
		_, err := load(t, "broker: {queues: [{name: events}]}\nalerts: [{"+sink+"}]\n", nil, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "overdue.yaml:2: "+want) {
			t.Errorf("%s: %v, want %q", sink, err, want)
		}
	}
}

func TestACommaInADisplayNameSeparatesNoAddresses(t *testing.T) {
	setting := SettingAt("alerts[].email.to")
	for text, want := range map[string][]string{
		"":                               {},
		"a@example.com, b@example.com":   {"a@example.com", "b@example.com"},
		"a@example.com,, b@example.com,": {"a@example.com", "b@example.com"},
		"Doe, Jane <jane@example.com>":   {"Doe, Jane <jane@example.com>"},
		`"Doe, Jane" <jane@example.com>, ops@example.com`: {`"Doe, Jane" <jane@example.com>`, "ops@example.com"},
		"ops@example.com, Doe, Jane <jane@example.com>":   {"ops@example.com", "Doe, Jane <jane@example.com>"},
		`"a@b, \"c, d" <e@example.com>, f@example.com`:    {`"a@b, \"c, d" <e@example.com>`, "f@example.com"},
		"nobody": {"nobody"},
	} {
		got, err := setting.Parse(text)
		if diff := cmp.Diff(any(want), got); diff != "" || err != nil {
			t.Errorf("Parse(%s): %v (-want +got):\n%s", text, err, diff)
		}
	}
}
