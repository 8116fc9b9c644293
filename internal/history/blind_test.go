// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
)

func TestBlindTimesOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, prometheus.NewRegistry())
	if seen := h.LastSeen(); !seen.IsZero() {
		t.Errorf("a new history has seen deadlines until %s", seen)
	}
	now := time.Now().UTC().Truncate(time.Second)
	b := alert.Blind{From: now.Add(-time.Minute), To: now, Reason: "the namespace did not answer"}
	b.SetEntities(map[string]alert.BlindCounts{"orders": {Deadlines: 2, Late: 1}}, func(string) map[string]string { return nil })
	e := alert.NewBlind("overdue.test", "host-1", b)
	h.took(&e, "chat", now)
	h.Saw(now)
	h.flush(t.Context(), now)
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
	h = open(t, dir, prometheus.NewRegistry())
	defer func() { _ = h.file.close() }()
	if seen := h.LastSeen(); !seen.Equal(now) {
		t.Errorf("deadlines were seen until %s, want %s", seen, now)
	}
	found := h.Find(func(e *alert.Event) bool { return e.Type == alert.TypeBlind }, 10)
	if len(found) != 1 || len(found[0].TakenBy) != 1 {
		t.Fatalf("found %+v, want one blind time that one sink took", found)
	}
	if diff := cmp.Diff(e, found[0].Event); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	missed, _, err := h.Missed(context.Background(), time.Time{}, func(*alert.Event) bool { return true }, 10)
	if err != nil || len(missed) != 0 {
		t.Errorf("missed deadlines: %+v, %v; want none", missed, err)
	}
}
