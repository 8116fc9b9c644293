// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/testing/freeport"
	"overdue/internal/testing/redistest"
)

// startStored starts a process that keeps companions in a Redis, and returns it with its configuration's text.
func startStored(t *testing.T, addr, more string) (*Process, string) {
	t.Helper()
	text := fmt.Sprintf("companionStore: redis\nredis: redis://%s\nlisten: {amqp: %q, http: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n"+
		"broker: {listen: %q, queues: [{name: orders, deadLetteringOnMessageExpiration: true}]}\n%s",
		addr, freeport.Address(t), freeport.Address(t), more)
	c, err := loadText(t, text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), config.RoleRun, c, zap.NewNop(), zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil && !strings.Contains(err.Error(), "redis forgets") { // what it has ended of is reported again
			t.Errorf("stop: %v", err)
		}
	})
	return p, text
}

// isReady waits until a process is.
func (p *Process) isReady(t *testing.T) {
	t.Helper()
	eventually(t, "ready", func() bool { status, _ := askAdmin(p.admin, "GET", "/readyz", ""); return status == http.StatusOK })
}

// shows waits until a page of the admin port has this status, and says want.
func (p *Process) shows(t *testing.T, target string, status int, want string) {
	t.Helper()
	eventually(t, target+" says "+want, func() bool {
		got, body := askAdmin(p.admin, "GET", target, "")
		return got == status && strings.Contains(body, want)
	})
}

// A process that keeps companions in Redis says so where operators look, and shows what it keeps.
func TestAProcessKeepsCompanionsInRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	p, _ := startStored(t, r.Addr, "")
	p.isReady(t)
	if status := postDue(t, p, "m"); status != http.StatusCreated {
		t.Fatalf("send = %d, want 201", status)
	}
	p.shows(t, "/metrics", http.StatusOK, `overdue_stored_companions{state="waiting"} 1`)
	p.shows(t, "/metrics", http.StatusOK, "overdue_companion_store_durable 1")
	p.shows(t, "/healthz/outbound?verbose", http.StatusOK, "[+] companion store")
}

// A process that keeps companions in Redis refuses sends and is not ready while Redis is away.
func TestAProcessIsNotReadyWithoutItsCompanionStore(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	p, _ := startStored(t, r.Addr, "")
	p.isReady(t)
	if status := postDue(t, p, "m-1"); status != http.StatusCreated {
		t.Fatalf("send = %d, want 201", status)
	}
	r.Kill()
	eventually(t, "a send is refused", func() bool { return postDue(t, p, "m-2") == http.StatusServiceUnavailable })
	p.shows(t, "/readyz?verbose", http.StatusServiceUnavailable, "[-] companion store: redis: companions")
	r.Restart()
	p.isReady(t)
	p.shows(t, "/metrics", http.StatusOK, `overdue_stored_companions{state="waiting"} 1`)
}

// With a journal sends go through while Redis is away, and their companions come to it when it is back.
func TestTheJournalStandsInForRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	p, _ := startStored(t, r.Addr, "onMonitorDown: pass\njournal: {directory: "+filepath.Join(t.TempDir(), "journal")+"}\n")
	p.isReady(t)
	r.Kill()
	if status := postDue(t, p, "m"); status != http.StatusCreated {
		t.Errorf("send = %d, want 201", status)
	}
	if status, body := askAdmin(p.admin, "GET", "/readyz?verbose", ""); status != http.StatusOK || !strings.Contains(body, " the monitor queue, which is down") {
		t.Errorf("readyz = %d %s, want it to be ready with a remark", status, body)
	}
	r.Restart()
	eventually(t, "the companion is in Redis", func() bool {
		_, body := askAdmin(p.admin, "GET", "/metrics", "")
		// A send that took so long has a second one.
		return !strings.Contains(body, `overdue_stored_companions{state="waiting"} 0`) && strings.Contains(body, `overdue_stored_companions{state="waiting"}`) && strings.Contains(body, "overdue_journal_companions 0")
	})
}

// A Redis that would forget companions is reported at the start.
func TestARedisThatForgetsIsNoPlaceForCompanions(t *testing.T) {
	r := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	p, _ := startStored(t, r.Addr, "")
	if err := <-p.life.Failed; !strings.Contains(err.Error(), "maxmemory-policy allkeys-lru") {
		t.Errorf("the process ends with %v, want the policy", err)
	}
	r = redistest.Start(t)
	p, _ = startStored(t, r.Addr, "")
	p.isReady(t)
	if status, body := askAdmin(p.admin, "GET", "/healthz/outbound", ""); status != http.StatusServiceUnavailable || !strings.Contains(body, "no append-only file") {
		t.Errorf("outbound = %d %s, want it to say that nothing is on disk", status, body)
	}
}
