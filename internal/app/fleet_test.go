// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/history"
	"overdue/internal/testing/redistest"
)

// Each process of a fleet shows all of them, with why they are not ready, until they stop.
func TestTheProcessesOfAFleetShowEachOther(t *testing.T) {
	t.Parallel()
	redis := redistest.InMemory(t)
	b, _, stopBroker := startOn(t, config.RoleBroker, t.TempDir(), "{name: orders}")
	defer stopBroker()
	start := func(role config.Role) *Process {
		t.Helper()
		c, err := loadText(t, fmt.Sprintf("namespace: %q\nmonitorQueue: due\nredis: redis://%s\n", b.OwnConnectionString(), redis.Addr()), freePorts, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Start(t.Context(), role, c, zap.NewNop(), zap.NewAtomicLevel())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	monitor, proxy := start(config.RoleMonitor), start(config.RoleProxy)
	defer func() {
		if err := monitor.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	// states are the roles that a process shows, in order, with why they are not ready.
	states := func(of *Process) string {
		_, body := askAdmin(of.admin, "GET", history.FleetPath, "")
		var f history.Fleet
		if err := json.Unmarshal([]byte(body), &f); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		var all []string
		for _, r := range f.Processes {
			text := r.Role
			if strings.Contains(r.NotReady, `no queue "due"`) {
				text += " without its queue"
			}
			all = append(all, text)
		}
		slices.Sort(all)
		return f.Scope + ": " + strings.Join(all, ", ")
	}
	shows := func(of *Process, want string) {
		t.Helper()
		eventually(t, of.role.Name+" shows "+want, func() bool { return states(of) == want })
	}
	const both = "fleet: monitor without its queue, proxy without its queue"
	shows(monitor, both)
	shows(proxy, both)
	if _, err := b.Embedded().Default().CreateQueue(broker.QueueConfig{Name: "due"}); err != nil {
		t.Fatal(err)
	}
	shows(proxy, "fleet: monitor, proxy")
	if err := proxy.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	shows(monitor, "fleet: monitor")
	if f, err := monitor.fleet.Read(t.Context()); err != nil || len(f.Processes) != 1 || !f.Processes[0].Own {
		t.Errorf("the fleet is %+v, %v; want this process", f, err)
	}
}

func TestAProcessWithoutRedisShowsItself(t *testing.T) {
	t.Parallel()
	p := startTest(t, "broker: {queues: [{name: orders, deadLetteringOnMessageExpiration: true}]}\n")
	if status := postWith(t, p, "hello", "BrokerProperties", `{"MessageId":"m","TimeToLive":1}`); status != 201 {
		t.Fatalf("the send = %d", status)
	}
	eventually(t, "a missed deadline of this process alone", func() bool {
		_, body := askAdmin(p.admin, "GET", history.FleetPath, "")
		var f history.Fleet
		if err := json.Unmarshal([]byte(body), &f); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return f.Scope == history.ScopeProcess && len(f.Processes) == 1 && f.Ever["orders"]["missed"] == 1 && f.Today["orders"]["missed"] == 1
	})
}
