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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
)

// running opens a history as a process does and runs it. stop ends it.
func running(t *testing.T, c Config) (h *History, stop func()) {
	t.Helper()
	h, _, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	synctest.Wait()
	return h, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func configIn(dir string) Config {
	return Config{Directory: dir, Keep: time.Hour, MaxSize: 1 << 20, Metrics: prometheus.NewRegistry(), Changed: func(error) {}}
}

func wantGaps(t *testing.T, h *History, since time.Time, want ...Gap) {
	t.Helper()
	if diff := cmp.Diff(want, h.Gaps(since), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("gaps: %s", diff)
	}
}

// An operator learns for which spans nobody knows whether deadlines were missed.
func TestTheSpansThatAreMissingAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configIn(t.TempDir())
		began := time.Now().UTC()
		h, stop := running(t, c)
		wantGaps(t, h, began.Add(-time.Minute), Gap{To: began, Reason: reasonBegin})
		wantGaps(t, h, began)
		time.Sleep(10 * time.Minute)
		stopped := time.Now().UTC()
		stop()
		time.Sleep(5 * time.Minute)
		again := time.Now().UTC()
		h, stop = running(t, c)
		defer func() { stop() }()
		down := Gap{From: stopped, To: again.Add(time.Second), Reason: reasonStopped}
		wantGaps(t, h, began, down)
		wantGaps(t, h, again.Add(time.Second))
		time.Sleep(time.Minute)
		wantGaps(t, h, time.Time{}, Gap{To: began, Reason: reasonBegin}, down)
		time.Sleep(time.Hour) // the gap is as old as what it is about
		wantGaps(t, h, time.Time{}, Gap{To: time.Now().UTC().Add(-c.Keep), Reason: reasonKeep})
	})
}

func TestAKilledProcessLeavesAGapSinceItsLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configIn(t.TempDir())
		h, _, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now().UTC()
		time.Sleep(time.Minute)
		h.flush(t.Context(), time.Now())
		written := time.Now().UTC()
		time.Sleep(4 * time.Second)
		if err := h.file.close(); err != nil {
			t.Fatal(err)
		}
		h, stop := running(t, c)
		defer stop()
		wantGaps(t, h, began, Gap{From: written, To: time.Now().UTC().Add(time.Second), Reason: reasonStopped})
	})
}

func TestAFileThatWasResetOrPrunedForItsSizeBeginsThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configIn(t.TempDir())
		if err := os.WriteFile(filepath.Join(c.Directory, fileName), []byte(strings.Repeat("no history ", 10_000)), 0o600); err != nil {
			t.Fatal(err)
		}
		h, stop := running(t, c)
		defer func() { stop() }()
		now := time.Now().UTC()
		wantGaps(t, h, time.Time{}, Gap{To: now, Reason: reasonDamaged})
		for i := range 2000 {
			miss(t, h, fmt.Sprintf("%04d%s", i, strings.Repeat("x", 2000)), now.Add(time.Duration(i)*time.Second))
		}
		time.Sleep(time.Minute)
		h.forgetMemory()
		oldest, _, err := h.Missed(t.Context(), time.Time{}, all, 1<<20)
		if err != nil || len(oldest) == 0 || len(oldest) == 2000 {
			t.Fatalf("%d are left, %v; want some", len(oldest), err)
		}
		begins := oldest[len(oldest)-1].Event.Data.Deadline
		want := Gap{To: begins, Reason: reasonSize}
		wantGaps(t, h, time.Time{}, want)
		stop()
		h, stop = running(t, c)
		wantGaps(t, h, time.Time{}, want)
	})
}

func TestDroppedDeadlinesAreAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configIn(t.TempDir())
		c.MaxSize = 64 << 20
		h, _, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		path := h.file.db.Path()
		began := time.Now().UTC()
		if err := h.file.close(); err != nil { // it cannot be written
			t.Fatal(err)
		}
		first, last := began.Add(10*time.Second), began.Add(20*time.Second)
		miss(t, h, "dropped", last)
		miss(t, h, "dropped too", first)
		for i := range Capacity - 2 {
			miss(t, h, fmt.Sprint(i), began)
		}
		h.flush(t.Context(), time.Now())
		miss(t, h, "one more", began)
		miss(t, h, "another one", began)
		if h.file, err = tryOpen(path, began, reasonBegin); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		waits := Gap{From: began, To: time.Now().UTC(), Reason: reasonWaits}
		dropped := Gap{From: first, To: last, Reason: reasonDropped}
		wantGaps(t, h, began, dropped, waits)
		h.flush(t.Context(), time.Now())
		dropped.To = dropped.To.Add(time.Second)
		wantGaps(t, h, began, dropped)
		if err := h.file.close(); err != nil {
			t.Error(err)
		}
	})
}

// A proxy alone sees no missed deadline, whatever its history has.
func TestAProxyDoesNotSayThatNoDeadlineWasMissed(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	h.cfg.NoMonitor = true
	s := httptest.NewServer(h)
	defer s.Close()
	since := time.Now().Add(time.Hour)
	got, err := Fetch[Fetched](t.Context(), s.Listener.Addr().String(), MissedPath, "", since)
	if err != nil || len(got.Gaps) != 1 || got.Gaps[0].Reason != reasonProxy {
		t.Errorf("Fetch = %+v, %v; want that it has no monitor", got, err)
	}
	if got, err := Fetch[Point](t.Context(), s.Listener.Addr().String(), MinutesPath, "", since); err != nil || len(got.Gaps) != 0 {
		t.Errorf("FetchMinutes = %+v, %v; want no gap", got, err)
	}
}

func TestAnAnswerHasItsGaps(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	s := httptest.NewServer(h)
	defer s.Close()
	got, err := Fetch[Fetched](t.Context(), s.Listener.Addr().String(), MissedPath, "", time.Now().Add(-time.Minute))
	if err != nil || len(got.Gaps) != 1 || got.Gaps[0].Reason != reasonBegin || !strings.HasPrefix(got.Gaps[0].String(), "until ") {
		t.Errorf("Fetch = %+v, %v; want the gap before the history begins", got, err)
	}
}
