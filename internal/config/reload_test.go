// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilesOfAConfiguration(t *testing.T) {
	c := &Sources{file: "overdue.yaml", raw: map[string]any{
		"namespaceFile": "ns",
		"listen":        map[string]any{"tls": map[string]any{"keyFile": "no"}, "keys": []any{map[string]any{"name": "a", "keyFile": "key"}}},
		"alerts":        []any{map[string]any{"webhook": map[string]any{"urlFile": "url"}}},
		"broker":        map[string]any{"emulatorConfig": "Config.json"},
	}}
	if diff := cmp.Diff([]string{"Config.json", "key", "ns", "overdue.yaml", "url"}, c.Files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

const (
	beforeReload = `
log: {level: info}
shutdownTimeout: 20s
broker: {autoCreate: true}
monitor: {deadline: 1m, entities: [{queue: orders}, {queue: bills}]}
alerts: [{name: hook, slack: {url: "http://localhost/before"}}]
listen: {keys: [{name: app, key: s3cr3t-of-12, send: true}]}
`
	afterReload = `
log: {level: debug}
shutdownTimeout: 30s
broker: {autoCreate: true}
monitor: {deadline: 2m, entities: [{queue: orders, adopt: true}, {queue: slow}]}
alerts: [{name: hook, slack: {url: "http://localhost/after"}}]
listen: {keys: [{name: other, key: s3cr3t-of-12, send: true}]}
`
)

// loadTwo loads the configurations of before and after a reload.
func loadTwo(t *testing.T) (before, after *Config) {
	t.Helper()
	before, err := load(t, beforeReload, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err = load(t, afterReload, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return before, after
}

func TestDifferingNamesEachSettingInTheOrderOfTheConfiguration(t *testing.T) {
	before, after := loadTwo(t)
	want := []string{"listen.keys", "monitor.deadline", "monitor.entities", "alerts", "log.level", "shutdownTimeout"}
	if diff := cmp.Diff(want, Differing(before, after)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if same := Differing(before, before); len(same) > 0 {
		t.Errorf("a configuration differs from itself in %v", same)
	}
}

func TestAReloadTakesUpWhatIsLiveAndNothingElse(t *testing.T) {
	before, after := loadTwo(t)
	merged := before.WithLive(after)
	if diff := cmp.Diff([]string{"shutdownTimeout"}, Differing(merged, after)); diff != "" {
		t.Errorf("what still differs from the file (-want +got):\n%s", diff)
	}
	shown, err := merged.Sources.YAML(true)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"level: debug", "shutdownTimeout: 20s", "deadline: 2m0s", "queue: slow", "name: other"} {
		if !strings.Contains(string(shown), want) {
			t.Errorf("the settings in force lack %q:\n%s", want, shown)
		}
	}
	old, err := before.Sources.YAML(true)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(old), "level: info") || before.Log.Level != "info" {
		t.Errorf("the configuration from before has changed:\n%s", old)
	}
}

// A file that was cut short, or is half written, has less than before. One that is complete says so
// at its end.
func TestAConfigurationThatLosesSomethingHasToBeComplete(t *testing.T) {
	const keys = "listen: {keys: [{name: app, key: s3cr3t-of-12-a, send: true}]}\n"
	const entities = "broker: {autoCreate: true}\nmonitor:\n  entities:\n    - queue: orders\n    - queue: bills\n"
	const sinks = "alerts:\n  - {name: chat, slack: {url: http://x}}\n  - name: mail\n    webhook: {url: http://x}\n    entities: [orders]\n"
	before, err := load(t, keys+entities+sinks+"log: {level: debug}\n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{}\n":        "monitor.entities: orders is gone, monitor.entities: bills is gone, alerts: chat is gone, alerts: mail is gone, listen.keys: app is gone",
		"# nothing\n": "alerts: mail is gone",
		keys + entities + "alerts:\n  - {name: chat, slack: {url: http://x}}\n": "overdue.yaml may be cut short: alerts: mail is gone; if it is complete, end it with a line of three dots (...), or restart",
		keys + strings.TrimSuffix(entities, "    - queue: bills\n") + sinks:     "monitor.entities: bills is gone",
		entities + sinks: "listen.keys: app is gone",
		keys + entities + "      deadline: 1m\n" + sinks:                                         "",
		keys + entities + sinks + "log:\n":                                                       "",
		keys + entities + strings.TrimSuffix(sinks, "    entities: [orders]\n"):                  "overdue.yaml may be cut short: alerts: mail has changed; if",
		keys + entities + strings.TrimSuffix(sinks, "\n"):                                        "overdue.yaml may be cut short: its last line has no end",
		keys + entities + sinks:                                                                  "",
		keys + entities + sinks + "log: {level: warn}\n":                                         "",
		keys + entities + sinks + "  - {name: more, slack: {url: http://y}}\n":                   "",
		keys + strings.ReplaceAll(entities, "queue: bills", "queue: BILLS") + sinks:              "",
		keys + entities + "alerts:\n  - {name: chat, slack: {url: http://x}}\n...\n":             "",
		keys + entities + "alerts:\n  - {name: chat, slack: {url: http://x}}\n...":               "",
		keys + entities + "alerts:\n  - {name: chat, slack: {url: http://x}, text: \"\n...\"}\n": "alerts: mail is gone",
	} {
		after, err := load(t, text, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		err = after.CheckComplete(before)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
}

// The file says what it said; what is new stands in another one.
func TestASecretThatChangesLosesNothing(t *testing.T) {
	var loaded []*Config
	for _, url := range []string{"http://x/first", "http://x/second"} {
		c, err := load(t, "alerts: [{webhook: {url: http://x}}]\n", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Alerts[0].Webhook.URL = url // as if its file held that
		loaded = append(loaded, c)
	}
	if err := loaded[1].CheckComplete(loaded[0]); err != nil {
		t.Errorf("CheckComplete = %v, want nil", err)
	}
}

func TestKeepTakesTheOriginOfAListAlong(t *testing.T) {
	c := &Sources{raw: map[string]any{"alerts": []any{"a"}}, origin: map[string]string{"alerts": "f:1", "alerts[0].name": "f:2", "alertsElse": "f:3"}}
	from := Sources{raw: map[string]any{"alerts": []any{"b"}}, origin: map[string]string{"alerts": "g:5", "alertsElse": "g:6"}}
	c.Keep("alerts", from)
	if diff := cmp.Diff(map[string]any{"alerts": []any{"b"}}, c.raw); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"alerts": "g:5", "alertsElse": "f:3"}, c.origin); diff != "" {
		t.Errorf("origins (-want +got):\n%s", diff)
	}
}

func TestChangesNameElementsAndShowNoSecret(t *testing.T) {
	before, after := loadTwo(t)
	want := []string{
		"log.level is debug, was info",
		"monitor.deadline is 2m0s, was 1m0s",
		"monitor.entities: orders has changed", "monitor.entities: slow is new", "monitor.entities: bills is gone",
		"alerts: hook has changed",
		"listen.keys: other is new", "listen.keys: app is gone",
	}
	if diff := cmp.Diff(want, Changes(before, after)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestASinkThatOnlyMovedInTheListHasNotChanged(t *testing.T) {
	before := &Config{Alerts: []Alert{{Name: "hook", Key: "alerts[0].slack"}}}
	after := &Config{Alerts: []Alert{{Name: "new", Key: "alerts[0].email"}, {Name: "hook", Key: "alerts[1].slack"}}}
	if diff := cmp.Diff([]string{"alerts: new is new"}, Changes(before, after)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}
