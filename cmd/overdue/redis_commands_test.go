// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"overdue/internal/config"
	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
)

// The doctor says which rights a user of Redis lacks, and gives the command word by word, which cures it.
func TestTheDoctorLooksAtRedis(t *testing.T) {
	r := redistest.Start(t)
	r.Must("ACL", "SETUSER", "app", "on", ">sesame", "~overdue:*", "+@all", "-eval", "-evalsha")
	examine := func() (fix string) {
		t.Helper()
		var out strings.Builder
		env := map[string]string{"OVERDUE_REDIS": "redis://app:sesame@" + r.Addr}
		if err := run(t.Context(), []string{"doctor", "--json"}, func(name string) string { return env[name] }, &out, io.Discard); err != nil {
			t.Fatal(err)
		}
		var report struct {
			Findings []struct{ Subject, Check, Severity, Fix string }
		}
		if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "sesame") {
			t.Error("the report shows the password")
		}
		reached := false
		for _, f := range report.Findings {
			reached = reached || f.Subject == "redis" && f.Check == "reachable" && f.Severity == "ok"
			if f.Check == "rights" {
				fix += f.Fix
			}
		}
		if !reached {
			t.Errorf("no finding says that Redis answers:\n%s", out.String())
		}
		return fix
	}
	fix := examine()
	if want := "ACL SETUSER app +eval +evalsha"; fix != want {
		t.Fatalf("fix %q, want %q", fix, want)
	}
	r.Must(strings.Fields(fix)...)
	if fix = examine(); fix != "" {
		t.Errorf("the fix cures nothing: %q", fix)
	}
}

// `overdue deadlines` shows what the monitors of the fleet have together, and goes on without a Redis that is gone.
func TestDeadlinesShowsTheFleet(t *testing.T) {
	r := redistest.Start(t)
	_, addr := runBroker(t, "--broker-listen", "127.0.0.1:0", "--monitor-queue", "overdue-monitor")
	address, err := redisstore.ParseAddress("redis://" + r.Addr)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := redisstore.Open(redisstore.Config{Address: address, Fleet: []string{addr, "overdue-monitor"}, Slack: 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shared.Close() }) // its server is gone
	env := map[string]string{"OVERDUE_REDIS": "redis://" + r.Addr, "OVERDUE_NAMESPACE": config.ConnectionString(addr, config.AnyKeyName, config.AnyKey)}
	deadlines := func(args ...string) string {
		t.Helper()
		var out strings.Builder
		err := run(t.Context(), append([]string{"deadlines"}, args...), func(name string) string { return env[name] }, &out, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got, want := deadlines(), "No deadlines are pending in overdue-monitor.\n\nNo monitor has reported to Redis lately.\n"; got != want {
		t.Errorf("before any monitor: %q, want %q", got, want)
	}
	for range 2 { // of two monitors
		monitor := redisstore.Process{Monitor: true, Outstanding: map[string]int64{"orders": 2}}
		if err := shared.View().Report(t.Context(), monitor, map[string]map[string]uint64{"orders": {"missed": 5}, "bills": {"missed": 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := deadlines(), "\n2 monitors reported to Redis. Their totals:\nENTITY  IN PROGRESS  MISSED\nbills   0            2\norders  4            10\n"; !strings.HasSuffix(got, want) {
		t.Errorf("with two monitors: %q, want %q at the end", got, want)
	}
	if got := deadlines("Orders", "--json"); !strings.Contains(got, `"monitors": 2`) || !strings.Contains(got, `"inProgress": 4`) || strings.Contains(got, "bills") {
		t.Errorf("of orders: %s", got)
	}
	r.Kill()
	if got, want := deadlines(), "The totals of all monitors are unknown: redis: view: "; !strings.Contains(got, want) {
		t.Errorf("without Redis: %q, want %q", got, want)
	}
}
