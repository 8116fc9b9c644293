// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"overdue/internal/testing/redistest"
)

// A process with a Redis says where operators look how that is, without a word of its password, and is ready and sends whatever
// becomes of it.
func TestAProcessShowsHowItsRedisIs(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t, "--requirepass", "sesame")
	file := filepath.Join(t.TempDir(), "redis")
	if err := os.WriteFile(file, []byte("redis://:sesame@"+r.Addr+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startTest(t, "broker: {queues: [{name: orders}]}\nredisFile: "+file+"\n")
	shows := func(target string, status int, want string) {
		t.Helper()
		eventually(t, target+" says "+want, func() bool {
			got, body := askAdmin(p.admin, "GET", target, "")
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
	shows("/fleet", http.StatusOK, `"monitor": true`)
	shows("/fleet", http.StatusOK, `"scope": "fleet"`)
	r.Kill()
	shows("/fleet", http.StatusOK, `"scope": "alone"`)
	shows("/fleet", http.StatusOK, `"monitor": true`)
	shows("/healthz/outbound", http.StatusServiceUnavailable, "[-] redis: redis at "+r.Addr+" does not answer")
	shows("/metrics", http.StatusOK, "overdue_fleet_monitors 0\n")
	shows("/metrics", http.StatusOK, `overdue_redis_up{use="view"} 0`)
	if status := postDue(t, p, "m"); status != http.StatusCreated {
		t.Errorf("a send without Redis = %d, want 201", status)
	}
	shows("/readyz", http.StatusOK, "ready")
}
