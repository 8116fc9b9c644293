// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/slack"
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
	h.clock.resume(h.file.clock, start)
	return h
}

func miss(t *testing.T, h *History, id string, deadline time.Time) {
	t.Helper()
	if err := h.Record(sink{}).Alert(t.Context(), missEvent(id, deadline)); err != nil {
		t.Fatal(err)
	}
}

func missEvent(id string, deadline time.Time) alert.Event {
	return alert.Event{ID: "e-" + id, Type: alert.TypeMissed, Subject: id, Data: alert.EventData{Entity: "orders", MessageID: id, Deadline: deadline}}
}

func all(*alert.Event) bool { return true }

// waits is how many events wait for the file.
func waits(h *History) int { return len(h.waiting()) }

// forgetMemory leaves what the file has.
func (h *History) forgetMemory() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest, h.next, h.byID = nil, 0, nil
}

func ids(t *testing.T, h *History, since time.Time) string {
	t.Helper()
	found, _, err := h.Missed(t.Context(), since, all, 100)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range found {
		names = append(names, found[i].Event.Data.MessageID)
	}
	return strings.Join(names, " ")
}

func TestMissedDeadlinesOutliveTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	h := open(t, dir, prometheus.NewRegistry())
	for i := range 3 {
		miss(t, h, fmt.Sprint("m-", i), start.Add(time.Duration(i)*time.Minute))
	}
	miss(t, h, "m-1", start.Add(time.Minute)) // notified once more
	h.flush(t.Context(), start)
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
	h = open(t, dir, prometheus.NewRegistry())
	if got := ids(t, h, start.Add(time.Minute)); got != "m-2 m-1" {
		t.Errorf("missed since the second: %q, want the latest first, each once", got)
	}
	h.flush(t.Context(), start.Add(time.Hour+90*time.Second))
	if got := ids(t, h, time.Time{}); got != "m-2" {
		t.Errorf("missed an hour later: %q, want m-2 alone", got)
	}
}

// While the disk is full an operator asks all the more.
func TestMissedDeadlinesThatAreNotWrittenYetAreFound(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	miss(t, h, "m-1", start)
	h.flush(t.Context(), start)
	miss(t, h, "m-1", start) // notified once more
	miss(t, h, "m-3", start.Add(2*time.Second))
	miss(t, h, "m-0", start.Add(-time.Hour))
	miss(t, h, "m-2", start.Add(time.Second))
	if got := ids(t, h, start); got != "m-3 m-2 m-1" {
		t.Errorf("missed %q, want the latest first, each once", got)
	}
	found, _, err := h.Missed(t.Context(), start, all, 2)
	if err != nil || len(found) != 2 || found[1].Event.Data.MessageID != "m-2" {
		t.Errorf("the latest two are %v, %v", found, err)
	}
}

func TestCountsAreTheIncreasesOfMetricsByMinute(t *testing.T) {
	r := prometheus.NewRegistry()
	sends := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "overdue_sends_total"}, []string{"entity", "endpoint", "result"})
	r.MustRegister(sends)
	h := open(t, t.TempDir(), r)
	sends.WithLabelValues("orders", "amqp", "monitored").Add(2)
	sends.WithLabelValues("orders", "rest", "monitored").Add(1)
	h.flush(t.Context(), start)
	sends.WithLabelValues("orders", "amqp", "monitored").Add(4)
	h.flush(t.Context(), start.Add(time.Second))
	sends.WithLabelValues("orders", "amqp", "monitored").Add(5)
	h.flush(t.Context(), start.Add(-10*time.Minute)) // the clock was set back
	got, err := h.Minutes(time.Time{}, func(name string) bool { return name == "orders" }, 10)
	if err != nil || len(got) != 2 || got[0].Count != 7 || got[1].Count != 5 || got[0].Kind != "sends" || got[0].Result != "monitored" {
		t.Errorf("Minutes = %+v, %v, want 7 sends and, ten minutes before, 5", got, err)
	}
}

// Of what is outstanding the highest number of a minute counts, also if it comes in two writes.
func TestTheMostOutstandingDeadlinesOfAMinuteAreKept(t *testing.T) {
	r := prometheus.NewRegistry()
	waiting := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "overdue_outstanding_deadlines"}, []string{"entity"})
	r.MustRegister(waiting)
	h := open(t, t.TempDir(), r)
	at := start.Truncate(time.Minute)
	for i, n := range []float64{3, 7, 2, 0, 5} {
		waiting.WithLabelValues("orders").Set(n)
		h.flush(t.Context(), at.Add(time.Duration(i)*20*time.Second))
	}
	s := httptest.NewServer(h)
	defer s.Close()
	got, err := Fetch[Point](t.Context(), s.Listener.Addr().String(), MinutesPath, "ORDERS", at)
	if err != nil {
		t.Fatal(err)
	}
	if got := got.Found; len(got) != 2 || got[0].Count != 5 || got[1].Count != 7 || got[0].Kind != "outstanding" || !got[1].Minute.Equal(at) {
		t.Errorf("minutes = %+v, want 7 outstanding and, in the next one, 5", got)
	}
}

func TestTheSizeIsBounded(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	for i := range 3000 {
		miss(t, h, fmt.Sprintf("%04d-%s", i, strings.Repeat("x", 1000)), start.Add(time.Duration(i)*time.Second))
	}
	h.flush(t.Context(), start)
	if kept := h.file.bytes; kept > h.cfg.MaxSize || kept < h.cfg.MaxSize/2 {
		t.Errorf("%d bytes are kept of at most %d", kept, h.cfg.MaxSize)
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
	h.flush(t.Context(), start)
	h.flush(t.Context(), start)
	for i := range Capacity {
		miss(t, h, fmt.Sprint(i), start)
	}
	if len(changes) != 1 || changes[0] == nil || h.Dropped() != 1 || waits(h) != Capacity {
		t.Errorf("changes %v, %d dropped, %d wait; want one warning, 1 and %d", changes, h.Dropped(), waits(h), Capacity)
	}
	var err error
	if h.file, err = tryOpen(path, start, reasonBegin); err != nil {
		t.Fatal(err)
	}
	h.flush(t.Context(), start)
	if len(changes) != 2 || changes[1] != nil || waits(h) != 0 {
		t.Errorf("changes %v, %d wait; want a recovery and none", changes, waits(h))
	}
	if got := ids(t, h, time.Time{}); len(got) == 0 {
		t.Error("nothing was written after the recovery")
	}
}

// An event that leaves the memory while it is being written is lost only if that fails. The counter
// never falls: Prometheus would take that for a restart.
func TestWhatLeavesTheMemoryInAWriteIsDroppedIfThatFails(t *testing.T) {
	for name, failure := range map[string]error{"written": nil, "failed": errors.New("no space left on device")} {
		t.Run(name, func(t *testing.T) {
			h := open(t, t.TempDir(), prometheus.NewRegistry())
			for i := range Capacity {
				miss(t, h, fmt.Sprint(i), start)
			}
			b := h.beginWrite(nil, start)
			for i := range 10 {
				miss(t, h, fmt.Sprint("more-", i), start)
			}
			if n := h.Dropped(); n != 0 {
				t.Errorf("%d were dropped while they are written, want none", n)
			}
			if failure == nil {
				failure = h.file.write(b, start, start)
			}
			h.endWrite(b, start, failure)
			dropped, waiting := uint64(0), 10
			if failure != nil {
				dropped, waiting = 10, Capacity
			}
			if n := h.Dropped(); n != dropped || waits(h) != waiting {
				t.Errorf("%d were dropped and %d wait, want %d and %d", n, waits(h), dropped, waiting)
			}
		})
	}
}

func TestAPeakOfMissedDeadlinesIsWrittenBeforeItIsTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, t.TempDir(), prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		for i := range 2 * Capacity {
			miss(t, h, fmt.Sprint(i), start)
			if i%1_000 == 0 {
				synctest.Wait() // the file is as fast as its events come
			}
		}
		if n := h.Dropped(); n > 0 {
			t.Errorf("%d of %d missed deadlines that came within %v were dropped, want none", n, 2*Capacity, interval)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestFetchReadsWhatIsServed(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	miss(t, h, "a&b \x1b", start)
	h.flush(t.Context(), start)
	s := httptest.NewServer(h)
	defer s.Close()
	got, err := Fetch[Fetched](t.Context(), s.Listener.Addr().String(), MissedPath, "Orders", start)
	if err != nil || len(got.Found) != 1 || got.Found[0].Data.MessageID != "a&b \x1b" || !got.Found[0].Data.Deadline.Equal(start) {
		t.Errorf("Fetch = %+v, %v, want the one", got, err)
	}
	if got, err := Fetch[Fetched](t.Context(), s.Listener.Addr().String(), MissedPath, "invoices", start); err != nil || len(got.Found) != 0 {
		t.Errorf("Fetch of another queue = %+v, %v, want none", got, err)
	}
	none := httptest.NewServer(&History{})
	defer none.Close()
	if _, err := Fetch[Fetched](t.Context(), none.Listener.Addr().String(), MissedPath, "", start); err == nil || !strings.Contains(err.Error(), "history.directory") {
		t.Errorf("Fetch without a history = %v, want an error that names the setting", err)
	}
}

// The cost of an interval for a process with many entities, none of which is on the path of a send:
// the metrics are read and the increases written.
func BenchmarkFlush(b *testing.B) {
	r := prometheus.NewRegistry()
	sends := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "overdue_sends_total"}, []string{"entity", "endpoint", "result"})
	r.MustRegister(sends)
	meter := slack.NewMeter(r)
	h, _, err := Open(Config{Directory: b.TempDir(), Keep: time.Hour, MaxSize: 32 << 20, Metrics: r, Changed: func(err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.file.close() })
	at := start
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range 100 {
			name := fmt.Sprint("queue-", i)
			sends.WithLabelValues(name, "amqp", "monitored").Inc()
			meter.Link(name).Settled(at, at.Add(time.Duration(i)*time.Second), at.Add(time.Hour), 1)
		}
		at = at.Add(interval)
		b.StartTimer()
		h.flush(b.Context(), at)
	}
}
