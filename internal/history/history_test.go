// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
)

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

type sink struct{}

func (sink) Name() string                             { return "sink" }
func (sink) Alert(context.Context, alert.Event) error { return nil }

func open(t *testing.T, dir string, metrics *prometheus.Registry) *History {
	t.Helper()
	h, aside, err := Open(Config{Directory: dir, Keep: time.Hour, MaxSize: 1 << 20, Metrics: metrics, Changed: func(error) {}})
	if err != nil || aside != "" {
		t.Fatalf("Open = %q, %v", aside, err)
	}
	t.Cleanup(func() { _ = h.file.close() })
	return h
}

func miss(t *testing.T, h *History, id string, deadline time.Time) {
	t.Helper()
	e := alert.Event{ID: "e-" + id, Type: alert.TypeMissed, Subject: id, Data: alert.EventData{Entity: "orders", MessageID: id, Deadline: deadline}}
	if err := h.Record(sink{}).Alert(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

func ids(t *testing.T, h *History, since time.Time) string {
	t.Helper()
	found, err := h.Missed(since, func(*alert.Event) bool { return true }, 100)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i := range found {
		all = append(all, found[i].Data.MessageID)
	}
	return strings.Join(all, " ")
}

func TestMissedDeadlinesOutliveTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	h := open(t, dir, prometheus.NewRegistry())
	for i := range 3 {
		miss(t, h, fmt.Sprint("m-", i), start.Add(time.Duration(i)*time.Minute))
	}
	miss(t, h, "m-1", start.Add(time.Minute)) // notified once more
	h.flush(start)
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
	h = open(t, dir, prometheus.NewRegistry())
	if got := ids(t, h, start.Add(time.Minute)); got != "m-2 m-1" {
		t.Errorf("missed since the second: %q, want the latest first, each once", got)
	}
	h.flush(start.Add(time.Hour + 90*time.Second))
	if got := ids(t, h, time.Time{}); got != "m-2" {
		t.Errorf("missed an hour later: %q, want m-2 alone", got)
	}
}

func TestCountsAreTheIncreasesOfMetricsByMinute(t *testing.T) {
	r := prometheus.NewRegistry()
	sends := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "overdue_sends_total"}, []string{"entity", "endpoint", "result"})
	r.MustRegister(sends)
	h := open(t, t.TempDir(), r)
	sends.WithLabelValues("orders", "amqp", "monitored").Add(2)
	sends.WithLabelValues("orders", "rest", "monitored").Add(1)
	h.flush(start)
	sends.WithLabelValues("orders", "amqp", "monitored").Add(4)
	h.flush(start.Add(time.Second))
	sends.WithLabelValues("orders", "amqp", "monitored").Add(5)
	h.flush(start.Add(-10 * time.Minute)) // the clock was set back
	got, err := h.Minutes(time.Time{}, "orders", 10)
	if err != nil || len(got) != 2 || got[0].Count != 7 || got[1].Count != 5 || got[0].Kind != "sends" || got[0].Result != "monitored" {
		t.Errorf("Minutes = %+v, %v, want 7 sends and, ten minutes before, 5", got, err)
	}
}

func TestTheSizeIsBounded(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	for i := range 3000 {
		miss(t, h, fmt.Sprintf("%04d-%s", i, strings.Repeat("x", 1000)), start.Add(time.Duration(i)*time.Second))
	}
	h.flush(start)
	if h.file.bytes > h.cfg.MaxSize || h.file.bytes < h.cfg.MaxSize/2 {
		t.Errorf("%d bytes are kept of at most %d", h.file.bytes, h.cfg.MaxSize)
	}
	if got := ids(t, h, time.Time{}); !strings.HasPrefix(got, "2999-") {
		t.Errorf("the latest is %.5s, want 2999", got)
	}
}

func TestADamagedFileIsMovedAside(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte(strings.Repeat("no history ", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	h, aside, err := Open(Config{Directory: dir, Keep: time.Hour, MaxSize: 1 << 20, Metrics: prometheus.NewRegistry(), Changed: func(error) {}})
	if err != nil || filepath.Base(aside) != asideName {
		t.Fatalf("Open = %q, %v, want a new file and the old one aside", aside, err)
	}
	defer func() { _ = h.file.close() }()
	if _, err := os.Stat(aside); err != nil {
		t.Error(err)
	}
	if second, _, err := Open(h.cfg); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second Open = %v, %v, want an error that names the reason", second, err)
	}
}

func TestWhatCannotBeWrittenWaitsAndIsBounded(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	path := h.file.db.Path()
	var changes []error
	h.cfg.Changed = func(err error) { changes = append(changes, err) }
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
	miss(t, h, "first", start)
	h.flush(start)
	h.flush(start)
	for i := range maxPending {
		miss(t, h, fmt.Sprint(i), start)
	}
	if len(changes) != 1 || changes[0] == nil || h.Dropped() != 1 || len(h.pending) != maxPending {
		t.Errorf("changes %v, %d dropped, %d wait; want one warning, 1 and %d", changes, h.Dropped(), len(h.pending), maxPending)
	}
	var err error
	if h.file, err = tryOpen(path); err != nil {
		t.Fatal(err)
	}
	h.flush(start)
	if len(changes) != 2 || changes[1] != nil || len(h.pending) != 0 {
		t.Errorf("changes %v, %d wait; want a recovery and none", changes, len(h.pending))
	}
	if got := ids(t, h, time.Time{}); len(got) == 0 {
		t.Error("nothing was written after the recovery")
	}
}

func TestFetchReadsWhatIsServed(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	miss(t, h, "a&b \x1b", start)
	h.flush(start)
	s := httptest.NewServer(h)
	defer s.Close()
	got, err := Fetch(t.Context(), s.Listener.Addr().String(), "Orders", start)
	if err != nil || len(got) != 1 || got[0].Data.MessageID != "a&b \x1b" || !got[0].Data.Deadline.Equal(start) {
		t.Errorf("Fetch = %+v, %v, want the one", got, err)
	}
	if got, err := Fetch(t.Context(), s.Listener.Addr().String(), "invoices", start); err != nil || len(got) != 0 {
		t.Errorf("Fetch of another queue = %+v, %v, want none", got, err)
	}
	none := httptest.NewServer((*History)(nil))
	defer none.Close()
	if _, err := Fetch(t.Context(), none.Listener.Addr().String(), "", start); err == nil || !strings.Contains(err.Error(), "history.directory") {
		t.Errorf("Fetch without a history = %v, want an error that names the setting", err)
	}
}
