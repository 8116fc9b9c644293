// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"

	"overdue/internal/operations"
	"overdue/internal/testing/redistest"
)

// verdicts are the metrics of a process that begins, with the counter of its verdicts.
func verdicts() (*prometheus.Registry, *operations.Deadlines) {
	r := prometheus.NewRegistry()
	return r, operations.NewDeadlines(r)
}

func wantCounts(t *testing.T, h *History, now time.Time, wantToday, wantEver Verdicts, wantSince time.Time) {
	t.Helper()
	today, ever, since := h.Counts(now)
	if diff := cmp.Diff([]Verdicts{wantToday, wantEver}, []Verdicts{today, ever}); diff != "" || !since.Equal(wantSince) {
		t.Errorf("counts of today and ever since %s, want since %s (-want +got):\n%s", since, wantSince, diff)
	}
}

func TestCountsOfTodayAndEverOutliveTheProcess(t *testing.T) {
	dir, opened := t.TempDir(), time.Now()
	metrics, deadlines := verdicts()
	h := open(t, dir, metrics)
	since := h.totals.since
	if since.Before(opened.Add(-time.Second)) {
		t.Errorf("a new history counts since %s", since)
	}
	now := time.Now().UTC()
	yesterday := dayOf(now).Add(-time.Minute)
	deadlines.Add("orders", "missed", 2)
	deadlines.SetCanary("canaries")
	deadlines.Add("canaries", "missed", 1)
	h.flush(t.Context(), yesterday)
	deadlines.Add("orders", "missed", 1)
	h.flush(t.Context(), now)
	deadlines.Add("bills", "unknown", 4) // not written yet
	today := Verdicts{"orders": {"missed": 1}, "bills": {"unknown": 4}}
	ever := Verdicts{"orders": {"missed": 3}, "bills": {"unknown": 4}}
	wantCounts(t, h, now, today, ever, since)
	h.flush(t.Context(), now)
	wantCounts(t, h, now, today, ever, since)
	wantCounts(t, h, now.Add(24*time.Hour), Verdicts{}, ever, since)

	_ = h.file.close()
	metrics, deadlines = verdicts()
	h = open(t, dir, metrics)
	deadlines.Add("orders", "met", 1)
	today["orders"]["met"], ever["orders"]["met"] = 1, 1
	wantCounts(t, h, now, today, ever, since)
	if err := h.file.prune(t.Context(), now.Add(time.Minute), now.Add(time.Hour), 0); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, h, now, today, ever, since)
}

func TestWithoutAFileCountsBeginWithTheProcess(t *testing.T) {
	metrics, deadlines := verdicts()
	h := InMemory(Config{Metrics: metrics})
	deadlines.Add("orders", "met", 1)
	h.flush(t.Context(), dayOf(h.began))
	deadlines.Add("orders", "met", 2)
	tomorrow := dayOf(h.began).Add(24 * time.Hour)
	wantCounts(t, h, dayOf(h.began), Verdicts{"orders": {"met": 3}}, Verdicts{"orders": {"met": 3}}, h.began)
	wantCounts(t, h, tomorrow, Verdicts{"orders": {"met": 2}}, Verdicts{"orders": {"met": 3}}, h.began)
}

// A file of an older version has records and no totals.
func TestTotalsBeginWithTheRecordsThatThereAre(t *testing.T) {
	dir := t.TempDir()
	metrics, deadlines := verdicts()
	h := open(t, dir, metrics)
	deadlines.Add("orders", "missed", 2)
	minute := time.Now().UTC().Add(-48 * time.Hour).Truncate(time.Minute)
	h.cfg.Keep = 1000 * time.Hour
	h.flush(t.Context(), minute)
	err := h.file.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(totalsBucket) })
	if err != nil {
		t.Fatal(err)
	}
	_ = h.file.close()
	metrics, _ = verdicts()
	wantCounts(t, open(t, dir, metrics), time.Now(), Verdicts{}, Verdicts{"orders": {"missed": 2}}, minute)
}

func TestTotalsAreBounded(t *testing.T) {
	now := time.Now()
	totals := newTotals(now)
	for i := range maxTotals {
		totals.ever[series{kindDeadlines, fmt.Sprint(i), "met"}] = 1
	}
	if got := totals.nameOf(series{kindDeadlines, "one more", "met"}); got.name != otherEntities {
		t.Errorf("one more than %d is counted as %q, want %q", maxTotals, got.name, otherEntities)
	}
	if got := totals.nameOf(series{kindDeadlines, "1", "met"}); got.name != "1" {
		t.Errorf("a known one is counted as %q", got.name)
	}
}

func TestUnknownVerdictsOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, prometheus.NewRegistry())
	verdict := func(n int) Unknown {
		at := start.Add(time.Duration(n) * time.Second)
		return Unknown{
			Entity:    "orders",
			MessageID: fmt.Sprint("m-", n),
			Deadline:  at,
			Judged:    at.Add(time.Second),
			Why:       "its queue was missing",
		}
	}
	want := func(h *History, limit int, want ...int) {
		t.Helper()
		found, scope := h.Unknown(t.Context(), limit)
		var wanted []Unknown
		for _, n := range want {
			wanted = append(wanted, verdict(n))
		}
		if diff := cmp.Diff(wanted, found); diff != "" || scope != ScopeProcess {
			t.Errorf("the latest %d of the %s (-want +got):\n%s", limit, scope, diff)
		}
	}
	const more = 5
	for n := range MaxUnknown + more {
		h.AddUnknown(verdict(n))
		if n%100 == 0 {
			h.flush(t.Context(), start)
		}
	}
	h.flush(t.Context(), start)
	h.flush(t.Context(), start)
	want(h, 2, MaxUnknown+more-1, MaxUnknown+more-2)
	_ = h.file.close()
	h = open(t, dir, prometheus.NewRegistry())
	found, _ := h.Unknown(t.Context(), 2*MaxUnknown)
	if len(found) != MaxUnknown || found[MaxUnknown-1] != verdict(more) {
		t.Errorf("%d after a restart, the first is %v; want %d, and %v", len(found), found[len(found)-1], MaxUnknown, verdict(more))
	}
	want(h, 1, MaxUnknown+more-1)
}

// Without a file the processes of a fleet share their unknown verdicts all the same.
func TestTheFleetSharesUnknownVerdicts(t *testing.T) {
	m := redistest.InMemory(t)
	a, b := InMemory(Config{Shared: sharedIn(t, m), Keep: time.Hour}), InMemory(Config{Shared: sharedIn(t, m), Keep: time.Hour})
	a.AddUnknown(Unknown{Entity: "of-a", Judged: time.Now().UTC()})
	b.AddUnknown(Unknown{Entity: "of-b", Judged: time.Now().UTC().Add(time.Second)})
	a.share(t.Context(), a.flush(t.Context(), time.Now()))
	b.share(t.Context(), b.flush(t.Context(), time.Now()))
	want := func(wantScope string, want ...string) {
		t.Helper()
		found, scope := a.Unknown(t.Context(), 10)
		var entities []string
		for _, u := range found {
			entities = append(entities, u.Entity)
		}
		if diff := cmp.Diff(want, entities); diff != "" || scope != wantScope {
			t.Errorf("of the %s, want the %s (-want +got):\n%s", scope, wantScope, diff)
		}
	}
	want(ScopeFleet, "of-b", "of-a")
	if _, err := m.Push(m.Keys()[0], "unreadable"); err != nil {
		t.Fatal(err)
	}
	want(ScopeFleet, "of-b", "of-a")
	m.SetError("broken")
	want(ScopeAlone, "of-a")
}
