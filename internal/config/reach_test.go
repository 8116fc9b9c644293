// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A setting that can have no effect looks like one that has it, until the night when nobody is alerted.
func TestSettingsWithoutEffectAreRefused(t *testing.T) {
	const entities = "broker: {autoCreate: true}\nmonitor:\n  entities:\n    - {queue: orders, deadline: 30s}\n"
	hook := func(filters string) string {
		return "alerts:\n  - webhook: {url: \"http://127.0.0.1/x\"}\n    " + filters + "\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"a reminder before the message": {"broker: {autoCreate: true}\nmonitor:\n  entities:\n    - queue: orders\n      deadline: 30s\n      warnBefore: [5s, 1m]\n",
			":6: monitor.entities[0].warnBefore is 1m0s, and deadline is 30s: the reminder would come before the message; make each"},
		"a reminder before the message, by the deadline of all": {"broker: {autoCreate: true}\nmonitor:\n  deadline: 30s\n  entities:\n    - {queue: orders, warnBefore: 30s}\n",
			":5: monitor.entities[0].warnBefore is 30s, and deadline is 30s"},
		"a sink of an entity that is not monitored": {entities + hook("entities: [orders, billing]"),
			`:7: alerts[0].entities: "billing" matches no monitored entity, so the sink gets no event; add it to monitor.entities`},
		"all but an entity that is not monitored": {entities + hook(`entities: ["!billing"]`),
			`:7: alerts[0].entities: "!billing" matches no monitored entity, so it excludes nothing; add it`},
		"a sink of nothing": {entities + hook(`entities: ["!ord*"]`), ":7: alerts[0].entities: no monitored entity is left, so the sink gets no event; exclude fewer"},
		"an exclusion that YAML takes for a tag": {entities + hook("entities:\n      - !orders"),
			":8: !orders is a YAML tag; put a value that begins with ! in quotes"},
		"a sink of labels that no entity has": {entities + hook("labels: team=payments"), ":7: alerts[0].labels: no monitored entity of this sink has labels like these"},
		"a sink of labels without entities":   {hook("labels: [team!=payments]"), ":3: alerts[0].labels: no monitored entity of this sink has labels like these"},
		"a sink of no label":                  {entities + hook("labels: [team]"), `:7: alerts[0].labels: "team" is no matcher`},
		"a severity that there is not": {"broker: {autoCreate: true}\nmonitor: {entities: [{queue: orders, labels: {severity: high}}]}\n",
			`:2: monitor.entities[0].labels: severity is "high"; choose from critical, error, warning, info`},
		"a misspelt entity of a sink": {entities + hook("entities: order"), `so the sink gets no event; did you mean orders?`},
		"a sink of a name that no entity has": {hook(`entities: ["my orders"]`),
			`:3: alerts[0].entities: "my orders" is not the name of a queue`},
		"reminders without warnBefore": {entities + hook("events: [missed, near]"),
			":7: alerts[0].events: no event near can come, because no monitored entity of this sink has warnBefore; set"},
		"reminders of an entity that the sink does not take": {
			"broker: {autoCreate: true}\nmonitor: {entities: [{queue: orders, warnBefore: 5s}, {queue: bills}]}\n" +
				"alerts: [{webhook: {url: \"http://127.0.0.1/x\"}, entities: bills, events: near}]\n", "no event near can come"},
		"a heartbeat without URL": {"heartbeat: {interval: 10s}\n",
			":1: heartbeat.interval is given, but there is no URL to ask for; set heartbeat.url or heartbeat.urlFile, or remove it"},
		"a heartbeat without URL, of the standard interval": {"heartbeat: {interval: 1m}\n", ":1: heartbeat.interval is given, but there is no URL to ask for"},
		"a canary without queue":                            {"canary: {interval: 1m}\n", ":1: canary.interval is given, but there is no canary; set canary.queue, or remove it"},
		"a reminder before the message, by its time to live": {"broker: {autoCreate: true}\nmonitor: {entities: [{queue: orders, deadline: 1m, defaultMessageTimeToLive: 30s, warnBefore: 40s}]}\n",
			"monitor.entities[0].warnBefore is 40s, and defaultMessageTimeToLive is 30s"},
		"a subscription as a queue": {"monitor: {entities: [{queue: events/subscriptions/audit}]}\n",
			`:1: monitor.entities[0].queue: "events/subscriptions/audit" is a subscription; write topic: events, and each of its subscriptions is monitored`},
		"a subscription as a topic": {"monitor: {entities: [{topic: events/subscriptions/audit}]}\n",
			`"events/subscriptions/audit" is a subscription; give a queue or topic, such as its topic events`},
		"a subscription with a name of dots": {"monitor: {entities: [{topic: events, subscriptions: [{name: ..}]}]}\n",
			`:1: monitor.entities[0].subscriptions[0].name: ".." is not the name`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.text, nil, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("load = %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestSettingsWithEffectAreTaken(t *testing.T) {
	for _, text := range []string{
		"broker: {autoCreate: true}\nmonitor: {entities: [{queue: orders, deadline: 30s, warnBefore: 29s}]}\nalerts: [{webhook: {url: \"http://127.0.0.1/x\"}, entities: \"ord*\", events: [near, missed, incomplete]}]\n",
		"broker: {autoCreate: true}\nmonitor: {entities: [{queue: orders, labels: {team: payments, tier: 1}}, {queue: bills}]}\nalerts: [{webhook: {url: \"http://127.0.0.1/x\"}, entities: \"!bills\", labels: [team=payments, tier=1]}]\n",
		"alerts: [{webhook: {url: \"http://127.0.0.1/x\"}, entities: [orders, \"b*\"]}]\n", // any queue may be monitored
		"heartbeat: {url: , interval: 1m}\ncanary: {queue: , interval: 1m}\n",              // what `config print` shows
	} {
		if _, err := load(t, text, nil, nil); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
}

func TestFilesAreRelativeToTheFileThatNamesThem(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"overdue.yaml": "alerts: [{webhook: {urlFile: secrets/hook}}, {webhook: {urlFile: " + folder + "/secrets/hook}}]\njournal: {directory: journal}\n",
		"secrets/hook": "http://127.0.0.1/x",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	none := func(string) string { return "" }
	t.Chdir(t.TempDir())
	c, err := Load(folder+"/overdue.yaml", none, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Journal.Directory, filepath.Join(folder, "journal"); got != want {
		t.Errorf("journal.directory = %s, want %s", got, want)
	}
	// The path of the file may be relative itself, and a variable does not know the file.
	t.Chdir(folder)
	c, err = Load("overdue.yaml", func(name string) string {
		return map[string]string{"OVERDUE_JOURNAL_DIRECTORY": "elsewhere"}[name]
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Journal.Directory; got != "elsewhere" {
		t.Errorf("journal.directory of a variable = %s, want it as written", got)
	}
}
