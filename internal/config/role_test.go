// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The ports of the official emulator are free for the broker, though one of them is
// that of the REST endpoint, which another role has.
func TestTheBrokerTakesThePortsOfTheEmulator(t *testing.T) {
	for r, want := range map[*Role]string{&RoleBroker: "", &RoleRun: "--broker-listen is 127.0.0.1:5672, which listen.amqp has already"} {
		c, err := load(t, "", nil, map[string]string{"broker.listen": "127.0.0.1:5672", "broker.alsoListen": "127.0.0.1:5300"})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := c.CheckRole(*r); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("overdue %s: %q, want %q", r.Name, got, want)
		}
	}
}

// With a list of entities, a misspelt name must be an error and not a new queue.
func TestQueuesAreNotMadeOnDemandWithAFileOfTheEmulator(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Config.json")
	if err := os.WriteFile(file, []byte(`{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "orders"}]}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[string]bool{"": false, "true": true} {
		flags := map[string]string{"broker.emulatorConfig": file}
		if asked != "" {
			flags["broker.autoCreate"] = asked
		}
		c, err := load(t, "", nil, flags)
		if err != nil {
			t.Fatal(err)
		}
		if c.Broker.AutoCreate != want {
			t.Errorf("autoCreate asked for %q is %v, want %v", asked, c.Broker.AutoCreate, want)
		}
	}
}

func TestAFileOfTheEmulatorForwardsToWhatIsThere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Config.json")
	text := `{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "a",` + "\n" + `"Properties": {"ForwardTo": "B"}}]}]}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{"broker.emulatorConfig": file}
	const want = `there is no queue or topic "B"; add it to broker.queues or broker.topics (line 2: ForwardTo of queue "a")`
	if _, err := load(t, "", nil, flags); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a forward to nothing = %v, want %s", err, want)
	}
	if _, err := load(t, "broker: {queues: [{name: b}]}\n", nil, flags); err != nil {
		t.Errorf("a forward to a queue of the other file: %v", err)
	}
	flags["broker.autoCreate"] = "true"
	if _, err := load(t, "", nil, flags); err != nil {
		t.Errorf("a forward to what is made on demand: %v", err)
	}
}

// Missing needs of the pass setting are reported at the start of the role that it is for.
func TestPassNeedsADirectory(t *testing.T) {
	c, err := load(t, "onMonitorDown: pass\n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckRole(RoleRun); err == nil || !strings.Contains(err.Error(), "overdue.yaml:1: onMonitorDown is pass, which needs journal.directory") {
		t.Errorf("fit = %v, want an error that names the missing setting", err)
	}
	if err := c.CheckRole(RoleBroker); err != nil {
		t.Errorf("fit of a role without a proxy = %v, want nil", err)
	}
}

// A directory is expected to have messages in it, and a namespace keeps its own.
func TestADirectoryOfTheBrokerIsRefusedWithANamespace(t *testing.T) {
	c, err := load(t, "broker: {directory: data}\n", map[string]string{"OVERDUE_NAMESPACE": "contoso.servicebus.windows.net"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "overdue.yaml:1: broker.directory is for the embedded broker, but OVERDUE_NAMESPACE: namespace is given, which keeps its own messages; remove one of the two"
	for _, r := range c.Roles() {
		if err := c.CheckRole(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("overdue %s: %v, want %s", r.Name, err, want)
		}
	}
	if c, err = load(t, "broker: {directory: data}\n", nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Roles() {
		if err := c.CheckRole(r); err != nil {
			t.Errorf("overdue %s without a namespace: %v", r.Name, err)
		}
	}
}
