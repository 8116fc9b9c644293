// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
)

func TestWrongVariablesAndFlagsNameThemselves(t *testing.T) {
	tests := map[string]struct {
		env, flags map[string]string
		want       string
	}{
		"variable":          {map[string]string{"OVERDUE_LOG_LEVEL": "loud"}, nil, `OVERDUE_LOG_LEVEL: log.level: "loud" is not one of`},
		"flag":              {nil, map[string]string{"listen.http": "x"}, `--listen-http: "x" is not an address`},
		"list in a mess":    {map[string]string{"OVERDUE_ALERTS": "[{"}, nil, "OVERDUE_ALERTS: this is not YAML"},
		"list of no list":   {map[string]string{"OVERDUE_ALERTS": "{}"}, nil, "OVERDUE_ALERTS: alerts has to be a list"},
		"reference":         {map[string]string{"OVERDUE_NAMESPACE": "Endpoint=sb://a.b;SharedAccessKeyName=r;SharedAccessKey=${KEY}"}, nil, "OVERDUE_NAMESPACE: namespace: the value refers to a variable as ${…}, which is not replaced; write the value itself"},
		"reference in URL":  {map[string]string{"OVERDUE_HEARTBEAT_URL": "https://h/${KEY}"}, nil, "OVERDUE_HEARTBEAT_URL: heartbeat.url: the value refers to a variable as ${…}"},
		"list with mistake": {map[string]string{"OVERDUE_BROKER_QUEUES": "[{nam: q}]"}, nil, "OVERDUE_BROKER_QUEUES: broker.queues[0].nam is not a known key; did you mean name?"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, "", tt.env, tt.flags)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestFlagsBeatVariablesBeatFileBeatsDefaults(t *testing.T) {
	text := "monitorQueue: of-file\nlog: {level: warn, format: json}\nproxy: {maxInFlight: 7}\n"
	env := map[string]string{"OVERDUE_MONITOR_QUEUE": "of-env", "OVERDUE_LOG_LEVEL": "error"}
	c, err := load(t, text, env, map[string]string{"monitorQueue": "of-flag"})
	if err != nil {
		t.Fatal(err)
	}
	got := []any{c.MonitorQueue, c.Log.Level, c.Log.Format, c.Proxy.MaxInFlight, c.Proxy.MaxBodySize}
	want := []any{"of-flag", "error", "json", int64(7), int64(1 << 20)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	wantOrigin := map[string]string{
		"monitorQueue": "--monitor-queue", "log.level": "OVERDUE_LOG_LEVEL",
		"log.format": "overdue.yaml:2", "proxy.maxInFlight": "overdue.yaml:3",
	}
	if diff := cmp.Diff(wantOrigin, c.Sources.origin); diff != "" {
		t.Errorf("origins (-want +got):\n%s", diff)
	}
}

func TestQueuesAreMadeOnDemandOnlyWithoutAFile(t *testing.T) {
	tests := map[string]struct {
		text string
		env  map[string]string
		want bool
	}{
		"no file":                {"", nil, true},
		"no file, variable":      {"", map[string]string{"OVERDUE_BROKER_AUTO_CREATE": "false"}, false},
		"file with a comment":    {"# nothing\n", nil, false},
		"file with null section": {"broker:\n", nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, tt.text, tt.env, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.Broker.AutoCreate != tt.want {
				t.Errorf("autoCreate = %v, want %v", c.Broker.AutoCreate, tt.want)
			}
		})
	}
}

func TestElementsOfListsHaveTheirDefaults(t *testing.T) {
	c, err := load(t, `
broker:
  autoCreate: true
  queues:
    - {name: orders, defaultMessageTimeToLive: P10675199DT2H48M5.4775807S}
    - {name: bills, defaultMessageTimeToLive: P1DT2H, lockDuration: 90s, maxDeliveryCount: 3, deadLetteringOnMessageExpiration: true}
monitor:
  entities: [{queue: orders, deadline: PT0.5S}]
alerts: [{webhook: {url: "https://example.com/hook"}}]
`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantQueues := []Queue{
		{QueueConfig: broker.QueueConfig{Name: "orders", LockDuration: time.Minute, MaxDeliveryCount: 10, DuplicateDetectionHistoryTimeWindow: 10 * time.Minute}},
		{QueueConfig: broker.QueueConfig{Name: "bills", DefaultMessageTimeToLive: 26 * time.Hour, LockDuration: 90 * time.Second, MaxDeliveryCount: 3,
			DeadLetteringOnMessageExpiration: true, DuplicateDetectionHistoryTimeWindow: 10 * time.Minute}},
	}
	if diff := cmp.Diff(wantQueues, c.Broker.Queues); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	wantEntities := []Entity{{Queue: "orders", Deadline: 500 * time.Millisecond, WarnBefore: []time.Duration{}, AdoptEvery: 30 * time.Second, Expire: "auto", DeadLetteringOnMessageExpiration: true, Subscriptions: []EntitySubscription{}, StampTTL: true, Labels: map[string]string{}}}
	if diff := cmp.Diff(wantEntities, c.Monitor.Entities); diff != "" {
		t.Errorf("entities (-want +got):\n%s", diff)
	}
	wantAlerts := []Alert{{
		Name: "webhook", Key: "alerts[0].webhook", Entities: []string{}, Labels: []string{}, Events: []string{},
		Group:   Group{By: []string{"type", "entity", "subscription"}, Wait: 10 * time.Second, Interval: 5 * time.Minute, ResolveAfter: 15 * time.Minute},
		Webhook: &Webhook{Server: Server{Request: Request{URL: "https://example.com/hook"}, Headers: map[string]string{}}, Timeout: 30 * time.Second},
	}}
	if diff := cmp.Diff(wantAlerts, c.Alerts, cmp.AllowUnexported(Alert{}, Webhook{})); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

// In the image and as a service nobody reads the banner, so the embedded broker has to be asked
// for.
func TestUnattendedRunNeedsANamespaceOrTheBrokerByName(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		env  map[string]string
		ok   bool
	}{
		"nothing":                 {"", map[string]string{"OVERDUE_UNATTENDED": "true"}, false},
		"nothing, on a terminal":  {"", nil, true},
		"a file":                  {"broker: {queues: [{name: q}]}\n", map[string]string{"OVERDUE_UNATTENDED": "true"}, false},
		"a file, on a terminal":   {"broker: {queues: [{name: q}]}\n", nil, true},
		"a file that asks for it": {"broker: {enabled: true}\n", map[string]string{"OVERDUE_UNATTENDED": "true"}, true},
		"a variable":              {"", map[string]string{"OVERDUE_UNATTENDED": "true", "OVERDUE_BROKER_ENABLED": "true"}, true},
		"a namespace":             {"", map[string]string{"OVERDUE_UNATTENDED": "true", "OVERDUE_NAMESPACE": "a.b"}, true},
		"an empty namespace":      {"", map[string]string{"OVERDUE_UNATTENDED": "true", "OVERDUE_NAMESPACE": ""}, false},
		"a file that forbids it":  {"broker: {enabled: false}\n", nil, false},
	} {
		c, err := load(t, tt.text, tt.env, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.CheckRole(RoleRun); (err == nil) != tt.ok {
			t.Errorf("%s: `overdue run` = %v, want to start: %v", name, err, tt.ok)
		}
		if err := c.CheckRole(RoleBroker); err != nil && c.Embedded() {
			t.Errorf("%s: `overdue broker` = %v", name, err)
		}
	}
}

func TestNamespaceFileHoldsTheSecret(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "sb")
	if err := os.WriteFile(secret, []byte(ConnectionString("127.0.0.1:1", AnyKeyName, AnyKey)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := load(t, "", map[string]string{"OVERDUE_NAMESPACE_FILE": secret}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := ConnectionString("127.0.0.1:1", AnyKeyName, AnyKey); c.Namespace != want {
		t.Errorf("namespace = %q, want %q", c.Namespace, want)
	}
	if err := os.WriteFile(secret, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = load(t, "", map[string]string{"OVERDUE_NAMESPACE_FILE": secret}, nil)
	if err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("with an empty file: got error %v, want one that says it is empty", err)
	}
}

// A preset is weaker than everything that the user says, and an error in one names its variable.
func TestPresetsAreDefaultsOfOneCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overdue.yaml")
	if err := os.WriteFile(file, []byte("broker: {monitorQueue: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	presets := []Preset{
		{Path: "broker.listen", Text: "127.0.0.1:1"},
		{Path: "broker.monitorQueue", Text: "false"},
		{Path: "broker.maxMessageSize", Text: "1MiB"},
		{Path: "broker.alsoListen", Text: "127.0.0.1:2", Variable: "EMULATOR_HTTP_PORT"},
	}
	getenv := func(name string) string { return map[string]string{"OVERDUE_BROKER_MAX_MESSAGE_SIZE": "2KiB"}[name] }
	c, err := Load(file, getenv, nil, presets...)
	if err != nil {
		t.Fatal(err)
	}
	if b := &c.Broker; b.Listen != "127.0.0.1:1" || !b.MonitorQueue || b.MaxMessageSize != 2<<10 || !slices.Equal(b.AlsoListen, []string{"127.0.0.1:2"}) {
		t.Errorf("broker = %+v", b)
	}
	if c.Given("broker.listen") || !c.Given("broker.alsoListen") {
		t.Error("a preset counts as given where nobody gave it, or not where a variable did")
	}
	if got, want := c.Sources.String(), file+", environment (2)"; got != want {
		t.Errorf("sources = %q, want %q", got, want)
	}
	_, err = Load("", getenv, nil, Preset{Path: "broker.alsoListen", Text: "nowhere", Variable: "EMULATOR_HTTP_PORT"})
	if want := `EMULATOR_HTTP_PORT: broker.alsoListen: "nowhere" is not an address`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("err = %v, want %s", err, want)
	}
}
