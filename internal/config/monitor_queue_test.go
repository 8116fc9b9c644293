// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/emulator"
)

func TestTheEmulatorsMonitorQueueIsRaisedToWhatCompanionsWant(t *testing.T) {
	file := broker.QueueConfig{Name: "Overdue-Monitor", LockDuration: 5 * time.Second, MaxDeliveryCount: 10, DefaultMessageTimeToLive: time.Hour}
	want := broker.QueueConfig{Name: "Overdue-Monitor", LockDuration: 10 * time.Second, MaxDeliveryCount: 2000}
	if diff := cmp.Diff(want, forCompanions(file)); diff != "" {
		t.Errorf("queue (-want +got):\n%s", diff)
	}
	longer := file
	longer.LockDuration = 5 * time.Minute
	if got := forCompanions(longer).LockDuration; got != 5*time.Minute {
		t.Errorf("a longer lock became %v", got)
	}
}

func TestTheEmulatorsWarningsNameWhatIsRaised(t *testing.T) {
	c := &Config{MonitorQueue: "overdue-monitor"}
	if got := c.EmulatorWarnings(); got != nil {
		t.Errorf("warnings without a file: %v", got)
	}
	short := broker.QueueConfig{LockDuration: 5 * time.Second, MaxDeliveryCount: 10, DefaultMessageTimeToLive: time.Hour}
	monitor, other := short, short
	monitor.Name, other.Name = "Overdue-Monitor", "orders"
	c.Broker.emulator = &emulator.Config{Warnings: []string{"w"}, Namespaces: []broker.NamespaceSetup{{Queues: []broker.QueueConfig{other, monitor}}}}
	want := []string{"w", "queue Overdue-Monitor: DefaultMessageTimeToLive, LockDuration, MaxDeliveryCount; " +
		"it is the monitor queue, where companions wait without an end, for a lock of ten seconds and up to 2000 deliveries"}
	if diff := cmp.Diff(want, c.EmulatorWarnings()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	c.Broker.emulator = &emulator.Config{Namespaces: []broker.NamespaceSetup{{Queues: []broker.QueueConfig{CompanionQueue("overdue-monitor")}}}}
	if got := c.EmulatorWarnings(); len(got) > 0 {
		t.Errorf("warnings of a queue that fits: %v", got)
	}
}

func TestAQueueThatCannotHoldCompanionsIsUnfit(t *testing.T) {
	for want, q := range map[string]broker.QueueConfig{
		"": {},
		"it requires sessions, which companions do not have; set RequiresSession to false": {RequiresSession: true},
		"it forwards to orders, where no monitor sees the companions; take ForwardTo out":  {ForwardTo: "orders"},
	} {
		if got := unfit(q); got != want {
			t.Errorf("unfit(%+v) = %q, want %q", q, got, want)
		}
	}
}

func TestEveryMonitorQueueIsKeptApart(t *testing.T) {
	const embedded = "monitorQueues: 3\nbroker: {queues: [{name: orders}"
	for text, want := range map[string]string{
		"monitorQueues: 17": "monitorQueues",
		"monitorQueues: 0":  "monitorQueues",
		"monitorQueues: 2\ncompanionStore: redis\nredis: redis://localhost":         "no companion is on a monitor queue",
		embedded + "]}\nmonitor: {entities: [{queue: overdue-monitor.3}]}":          "the monitor queue, which cannot monitor itself",
		embedded + "]}\ncanary: {queue: Overdue-Monitor.2}":                         "the monitor queue; the canary needs a queue of its own",
		embedded + ", {name: overdue-monitor.2}]}":                                  "which the broker makes by itself",
		embedded + ", {name: b, forwardTo: overdue-monitor.4}], autoCreate: false}": "there is no queue or topic",
		embedded + ", {name: b, forwardTo: overdue-monitor.3}], autoCreate: false}": "",
		embedded + "]}": "",
	} {
		c, err := load(t, text, nil, nil)
		if err == nil {
			err = c.CheckRole(RoleRun)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}
