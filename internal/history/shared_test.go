// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
)

// sharedIn is what a process shares with its fleet through m.
func sharedIn(t *testing.T, m *miniredis.Miniredis, configure ...func(*redisstore.Config)) *redisstore.History {
	t.Helper()
	address, err := redisstore.ParseAddress("redis://" + m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c := redisstore.Config{Address: address, Fleet: []string{"contoso", "monitor"}}
	for _, f := range configure {
		f(&c)
	}
	s, err := redisstore.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.History()
}

func TestTheFleetSharesItsHistory(t *testing.T) {
	m := redistest.InMemory(t)
	process := func() *History {
		h := open(t, t.TempDir(), prometheus.NewRegistry())
		h.cfg.Shared = sharedIn(t, m)
		return h
	}
	a, b := process(), process()
	now := time.Now()
	keep := func(h *History, id string) {
		t.Helper()
		miss(t, h, id, now)
		h.share(t.Context(), h.flush(t.Context(), now))
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
	long := missEvent("of-b-too", now)
	long.Data.MessageID = strings.Repeat("long ", redisstore.MostRecord) // too long to be shared
	if err := b.Record(sink{}).Alert(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	b.share(t.Context(), b.flush(t.Context(), now))
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

// The others of a fleet know the missed deadlines of a process that keeps no file.
func TestAProcessWithoutAFileSharesWhatItMissed(t *testing.T) {
	m := redistest.InMemory(t)
	a, b := InMemory(Config{Shared: sharedIn(t, m), Keep: time.Hour}), InMemory(Config{Shared: sharedIn(t, m), Keep: time.Hour})
	elsewhere := func(of *History, want string) {
		t.Helper()
		all := of.Elsewhere(t.Context())
		var ids []string
		for i := range all {
			ids = append(ids, all[i].Event.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("elsewhere: %q, want %q", got, want)
		}
	}
	for id, of := range map[string]*History{"of-a": a, "of-b": b} {
		e := missEvent(id, start)
		for _, sink := range []string{"log", "pager"} { // the later delivery shares nothing again
			of.took(&e, sink, start)
			of.share(t.Context(), of.flush(t.Context(), start))
		}
	}
	elsewhere(a, "e-of-b")
	elsewhere(b, "e-of-a")
	m.SetError("broken")
	elsewhere(a, "")
	elsewhere(InMemory(Config{}), "")
}

// A Redis that does not answer keeps no missed deadline from the file.
func TestTheFileDoesNotWaitForRedis(t *testing.T) {
	m := redistest.InMemory(t)
	var gaveUp atomic.Bool
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	h.cfg.Shared = sharedIn(t, m, func(c *redisstore.Config) {
		c.Slack = 1000
		c.Asked = func(_ string, err error, _ bool) { gaveUp.Store(gaveUp.Load() || err != nil) }
	})
	if err := h.cfg.Shared.Add(t.Context(), redisstore.MissedRecord, []string{"{}"}, time.Hour); err != nil { // it is connected from now on
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	m.Lock()
	for i := range 3 * Capacity / 2 {
		miss(t, h, fmt.Sprint(i), start)
		for i%(Capacity/2) == Capacity/2-1 && waits(h) > 0 {
			runtime.Gosched()
		}
	}
	if gaveUp.Load() {
		t.Error("the file waited until Redis had failed")
	}
	m.Unlock()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
