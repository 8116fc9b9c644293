// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"overdue/internal/redistest"
)

// A process with a Redis says where operators look how that is, without a word of its password, and is ready and sends whatever
// becomes of it.
func TestAProcessShowsHowItsRedisIs(t *testing.T) {
	r := redistest.Start(t, "--requirepass", "sesame")
	file := filepath.Join(t.TempDir(), "redis")
	if err := os.WriteFile(file, []byte("redis://:sesame@"+r.Addr+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startTest(t, "broker: {queues: [{name: orders}]}\nredisFile: "+file+"\n")
	shows := func(target string, status int, want string) {
		t.Helper()
		eventually(t, target+" says "+want, func() bool {
			got, body := ask(p.admin, "GET", target, "")
			if strings.Contains(body, "sesame") {
				t.Errorf("%s shows the password", target)
			}
			return got == status && strings.Contains(body, want)
		})
	}
	shows("/readyz", http.StatusOK, "ready")
	shows("/healthz/outbound?verbose", http.StatusOK, "[+] redis")
	shows("/metrics", http.StatusOK, "overdue_fleet_monitors 1\n")
	shows("/metrics", http.StatusOK, `overdue_redis_up{use="view"} 1`)
	shows("/configz", http.StatusOK, `"redisFile"`)
	r.Kill()
	shows("/healthz/outbound", http.StatusServiceUnavailable, "[-] redis: redis at "+r.Addr+" does not answer")
	shows("/metrics", http.StatusOK, "overdue_fleet_monitors 0\n")
	shows("/metrics", http.StatusOK, `overdue_redis_up{use="view"} 0`)
	if status := postDue(t, p, "m"); status != http.StatusCreated {
		t.Errorf("a send without Redis = %d, want 201", status)
	}
	shows("/readyz", http.StatusOK, "ready")
}

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
