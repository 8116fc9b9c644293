// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/redisstore"
)

func TestJudgeRedis(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Redis, *redisstore.Checkup)
		err    error
		want   []string
		fix    string // what the last fix says
	}{
		"nothing": {want: []string{"ok reachable", "ok rights"}},
		"nothing, far away": {change: func(r *Redis, _ *redisstore.Checkup) {
			r.Hosts = []string{"r.example:6380"}
			r.TLS, r.Password = true, true
		}, want: []string{"ok reachable", "ok rights"}},
		"nothing about itself": {change: func(_ *Redis, s *redisstore.Checkup) { s.Servers = nil }, want: []string{"ok reachable", "ok rights"}},
		"evicts": {change: func(_ *Redis, s *redisstore.Checkup) {
			s.Servers[0].Memory, s.Servers[0].UsedBytes, s.Servers[0].Eviction = 100, 99, "allkeys-lru"
		}, want: []string{"ok reachable", "ok rights"}},
		"gone":           {err: errors.New("dial tcp: connection refused"), want: []string{"warning reachable"}, fix: "firewalls"},
		"wrong password": {err: errors.New("WRONGPASS invalid username-password pair"), want: []string{"warning reachable"}, fix: "user and password in redis"},
		"in the clear": {change: func(r *Redis, _ *redisstore.Checkup) { r.Hosts = append(r.Hosts, "10.0.0.1:6379") },
			want: []string{"ok reachable", "warning tls", "warning password", "ok rights"}},
		"old": {change: func(_ *Redis, s *redisstore.Checkup) { s.Servers[0].Version = "5.0.14" }, want: []string{"ok reachable", "warning version"}, fix: "6.0"},
		"replica": {change: func(_ *Redis, s *redisstore.Checkup) {
			s.Servers[0].Replica, s.Refusal = true, "READONLY You can't write"
		}, want: []string{"ok reachable", "warning role"}, fix: "redis+sentinel://"},
		"silent replica": {change: func(_ *Redis, s *redisstore.Checkup) { s.Servers, s.Refusal = nil, "READONLY You can't write" }, want: []string{"ok reachable", "warning role"}, fix: "master"},
		"nearly full": {change: func(_ *Redis, s *redisstore.Checkup) {
			s.Servers[0].Memory, s.Servers[0].UsedBytes, s.Servers[0].Eviction = 100<<20, 95<<20, "noeviction"
		}, want: []string{"ok reachable", "warning memory"}, fix: "allkeys-lru"},
		"full":     {change: func(_ *Redis, s *redisstore.Checkup) { s.Refusal = "OOM command not allowed" }, want: []string{"ok reachable", "warning memory"}, fix: "maxmemory"},
		"its disk": {change: func(_ *Redis, s *redisstore.Checkup) { s.Refusal = "MISCONF Redis is configured to save" }, want: []string{"ok reachable", "warning persistence"}, fix: "stop-writes-on-bgsave-error"},
		"odd":      {change: func(_ *Redis, s *redisstore.Checkup) { s.Refusal = "ERR unknown command" }, want: []string{"ok reachable", "warning writes"}},
		"commands": {change: func(r *Redis, s *redisstore.Checkup) { r.User, s.Denied = "app", []string{"eval", "time"} }, want: []string{"ok reachable", "warning rights"}, fix: "ACL SETUSER app +eval +time"},
		"keys":     {change: func(_ *Redis, s *redisstore.Checkup) { s.KeyDenied = true }, want: []string{"ok reachable", "warning rights"}, fix: "ACL SETUSER default ~overdue:*"},
		"far":      {change: func(_ *Redis, s *redisstore.Checkup) { s.RoundTrip = 40 * time.Millisecond }, want: []string{"ok reachable", "warning round-trip"}},
	} {
		t.Run(name, func(t *testing.T) {
			state := redisstore.Checkup{RoundTrip: time.Millisecond, Servers: []redisstore.Server{{Version: "7.0.15", Eviction: "noeviction"}}}
			r := &Redis{Hosts: []string{"127.0.0.1:6379", "[::1]:6379", "localhost:1"}, Setting: "redis"}
			if c.change != nil {
				c.change(r, &state)
			}
			n := &notes{subject: "redis"}
			if c.err != nil {
				r.judgeFailure(n, c.err)
			} else {
				r.judge(n, &state)
			}
			all := n.all
			if diff := cmp.Diff(c.want, checks(all)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			for _, f := range all {
				if f.Subject != "redis" || f.Severity > Advice && f.Fix == "" {
					t.Errorf("%s of %s has no fix: %s", f.Check, f.Subject, f.Summary)
				}
			}
			if last := all[len(all)-1]; !strings.Contains(last.Fix, c.fix) {
				t.Errorf("fix %q, want something about %q", last.Fix, c.fix)
			}
		})
	}
}

func TestTheDoctorCountsTheProcessesOfAFleet(t *testing.T) {
	fleet := func(more ...redisstore.Process) *redisstore.Fleet {
		return &redisstore.Fleet{Processes: append([]redisstore.Process{
			{Host: "a", Admin: "127.0.0.1:9095", Role: "proxy"},
			{Host: "b", Role: "run", Monitor: true},
			{Host: "c", Role: "monitor", Monitor: true},
		}, more...)}
	}
	gone := redisstore.Process{Host: "d", Role: "monitor", Monitor: true, Gone: true, Seen: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)}
	for want, f := range map[string]*redisstore.Fleet{
		"ok: 2 proxies and 2 monitors report to it.":                                                            fleet(),
		"ok: 0 proxies and 0 monitors report to it.":                                                            {},
		"warning: 3 proxies and 2 monitors report to it; a:9096 (proxy) is not ready: draining.":                fleet(redisstore.Process{Host: "a", Admin: ":9096", Role: "proxy", NotReady: "draining"}),
		"warning: 2 proxies and 2 monitors report to it; d (monitor) has been gone since 2026-05-04 03:02:01Z.": fleet(gone),
		"warning: 2 proxies and 2 monitors report to it; " + strings.Repeat("d (monitor) has been gone since 2026-05-04 03:02:01Z; ", 5) + "2 more are gone or not ready.": fleet(
			gone, gone, gone, gone, gone, gone, gone),
	} {
		n := &notes{subject: "redis"}
		n.addFleet(f)
		if got := n.all[0].Severity.String() + ": " + n.all[0].Summary; got != want || len(n.all) != 1 {
			t.Errorf("the doctor says %q, want %q", got, want)
		}
	}
}
