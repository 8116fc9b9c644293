// SPDX-License-Identifier: Apache-2.0

package history

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/redisstore"
	"overdue/internal/slack"
	"overdue/internal/testing/redistest"
)

func TestTheFleetSharesItsHistory(t *testing.T) {
	m := redistest.InMemory(t)
	address, err := redisstore.ParseAddress("redis://" + m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	meters := map[*History]*slack.Meter{}
	process := func() *History {
		h := open(t, t.TempDir(), prometheus.NewRegistry())
		s, err := redisstore.Open(redisstore.Config{Address: address, Fleet: []string{"contoso", "monitor"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		h.cfg.Shared = s.History()
		meters[h] = h.measure()
		return h
	}
	a, b := process(), process()
	now := time.Now()
	h := func(h *History, id string, settled int) {
		miss(t, h, id, now)
		for range settled {
			meters[h].Link("orders").Settled(now, now.Add(time.Second), now.Add(time.Minute), 1)
		}
		h.flush(t.Context(), now)
	}
	h(a, "of-a", 30)
	h(b, "of-b", 4)

	ask := func(of *History, wantMissed, wantScope string, wantSettled uint64) {
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
		slacks, err := Fetch[slack.Summary](t.Context(), s.Listener.Addr().String(), SlackPath, "", now.Add(-time.Minute))
		if err != nil || len(slacks.Found) != 1 || slacks.Found[0].Count != wantSettled || slacks.Scope != wantScope {
			t.Errorf("slack: %+v of the %s, %v; want %d settlements of the %s", slacks.Found, slacks.Scope, err, wantSettled, wantScope)
		}
	}
	h(b, strings.Repeat("long ", redisstore.MostRecord), 0) // too long to be shared
	ask(a, "of-a of-b", ScopeFleet, 34)
	for _, key := range m.Keys() {
		if strings.HasSuffix(key, ":missed") {
			if _, err := m.Push(key, "unreadable"); err != nil {
				t.Fatal(err)
			}
		} else {
			m.HSet(key, "left\x00orders\x0099999", "7", "left\x00orders\x00other", "7", "left", "7", "slack\x00orders\x003", "7")
		}
	}
	ask(a, "of-a of-b", ScopeFleet, 34)
	m.FlushAll()
	ask(a, "of-a", ScopeFleet, 30) // it knows that itself
	m.SetError("broken")
	ask(a, "of-a", ScopeAlone, 30)
	miss(t, a, "later", now)
	a.flush(t.Context(), now)
	ask(a, "of-a later", ScopeAlone, 30)
}
