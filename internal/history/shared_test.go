// SPDX-License-Identifier: Apache-2.0

package history

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
)

func TestTheFleetSharesItsHistory(t *testing.T) {
	m := redistest.InMemory(t)
	address, err := redisstore.ParseAddress("redis://" + m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	process := func() *History {
		h := open(t, t.TempDir(), prometheus.NewRegistry())
		s, err := redisstore.Open(redisstore.Config{Address: address, Fleet: []string{"contoso", "monitor"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		h.cfg.Shared = s.History()
		return h
	}
	a, b := process(), process()
	now := time.Now()
	keep := func(h *History, id string) {
		t.Helper()
		miss(t, h, id, now)
		h.flush(t.Context(), now)
	}
	keep(a, "of-a")
	keep(b, "of-b")

	ask := func(of *History, wantMissed, wantScope string) {
		t.Helper()
		s := httptest.NewServer(of)
		defer s.Close()
		missed, err := Fetch[Fetched](t.Context(), s.Listener.Addr().String(), MissedPath, "", now.Add(-time.Minute))
		var names []string
		for i := range missed.Found {
			names = append(names, missed.Found[i].Data.MessageID)
		}
		if got := strings.Join(names, " "); err != nil || got != wantMissed || missed.Scope != wantScope {
			t.Errorf("missed: %q of the %s, %v; want %q of the %s", got, missed.Scope, err, wantMissed, wantScope)
		}
	}
	keep(b, strings.Repeat("long ", redisstore.MostRecord)) // too long to be shared
	ask(a, "of-a of-b", ScopeFleet)
	for _, key := range m.Keys() {
		if _, err := m.Push(key, "unreadable"); err != nil {
			t.Fatal(err)
		}
	}
	ask(a, "of-a of-b", ScopeFleet)
	m.FlushAll()
	ask(a, "of-a", ScopeFleet) // it knows that itself
	m.SetError("broken")
	ask(a, "of-a", ScopeAlone)
	keep(a, "later")
	ask(a, "of-a later", ScopeAlone)
}
