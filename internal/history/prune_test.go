// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/boltcheck"
)

// A burst passes history.keep all together, and a batch may be larger than history.maxSize. Each
// leaves a bucket of many pages empty.
func TestABucketIsEmptiedInOneFlush(t *testing.T) {
	for name, c := range map[string]struct {
		events  int
		padding string
		later   time.Duration // when the last flush comes
		maxSize int64
		left    int
	}{
		"one event":                       {events: 1, later: 2 * time.Hour, maxSize: 1 << 20},
		"a page":                          {events: 10, later: 2 * time.Hour, maxSize: 1 << 20},
		"many pages":                      {events: 3_000, later: 2 * time.Hour, maxSize: 8 << 20},
		"more than a transaction removes": {events: maxRemoved + 1, later: 4 * time.Hour, maxSize: 64 << 20},
		"a batch beyond the size":         {events: 100, padding: strings.Repeat("x", 10_000), maxSize: 1 << 10},
		"from the future, beyond it":      {events: 100, padding: strings.Repeat("x", 10_000), later: -48 * time.Hour, maxSize: 1 << 10},
		"all but the last":                {events: 3_000, later: time.Hour + 2999*time.Second - pruneInterval, maxSize: 8 << 20, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := open(t, dir, prometheus.NewRegistry())
			h.cfg.MaxSize = 64 << 20
			for i := range c.events {
				if i%Capacity == 0 {
					h.flush(t.Context(), start)
				}
				miss(t, h, fmt.Sprintf("%05d%s", i, c.padding), start.Add(time.Duration(i)*time.Second))
			}
			h.flush(t.Context(), start)
			h.cfg.MaxSize = c.maxSize
			h.clock.resume(time.Time{}, start.Add(c.later))
			h.flush(t.Context(), start.Add(c.later+pruneInterval))
			h.forgetMemory()
			found, _, err := h.Missed(t.Context(), time.Time{}, all, 1<<20)
			if err != nil || len(found) != c.left {
				t.Errorf("%d of %d missed deadlines are left, %v; want %d", len(found), c.events, err, c.left)
			}
			if n := h.file.bytes; n > 2*1<<10 || n < 0 {
				t.Errorf("%d bytes are counted, want those of what is left", n)
			}
			counted, path := h.file.bytes, h.file.db.Path()
			if err := h.file.close(); err != nil {
				t.Fatal(err)
			}
			if err := boltcheck.File(path); err != nil {
				t.Error(err)
			}
			// The same file is opened again, and goes on.
			f, aside, err := openStore(dir, start.Add(-48*time.Hour)) // by a clock for which there is no gap
			if err != nil || aside != "" {
				t.Fatalf("open again: %q, %v", aside, err)
			}
			if f.bytes != counted {
				t.Errorf("opened again it has %d bytes, want %d as counted", f.bytes, counted)
			}
			if err := f.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAStopDoesNotWaitUntilTheOldestAreRemoved(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	const events = 300
	for i := range events {
		miss(t, h, fmt.Sprint(i), start)
	}
	h.flush(t.Context(), start)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	h.clock.resume(time.Time{}, start.Add(2*time.Hour))
	h.flush(stopped, start.Add(2*time.Hour))
	h.forgetMemory()
	if found, _, err := h.Missed(t.Context(), time.Time{}, all, 1<<20); err != nil || len(found) != events {
		t.Errorf("%d are left, %v; want all, since the next process removes them", len(found), err)
	}
	h.flush(t.Context(), start.Add(2*time.Hour+pruneInterval))
	if found, _, err := h.Missed(t.Context(), time.Time{}, all, 1<<20); err != nil || len(found) != 0 {
		t.Errorf("%d are left, %v; want none", len(found), err)
	}
}

// hang has h wait for its metrics until goesOn is closed: what follows hangs with them, as with the
// disk.
func (h *History) hang() (goesOn chan struct{}) {
	r := prometheus.NewRegistry()
	h.cfg.Metrics, goesOn = r, make(chan struct{})
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hanging"}, func() float64 {
		<-goesOn
		return 0
	}))
	return goesOn
}

// A disk that hangs fails no write. It is reported after a while, and again once it goes on.
func TestALateWriteIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, t.TempDir(), prometheus.NewRegistry())
		changes := make(chan error, 10)
		h.cfg.Changed = func(err error) { changes <- err }
		goesOn, ended := h.hang(), make(chan struct{})
		go func() {
			defer close(ended)
			h.flush(t.Context(), start)
		}()
		time.Sleep(lateAfter - 1)
		synctest.Wait()
		if len(changes) != 0 {
			t.Errorf("%v is reported before it is late", <-changes)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(changes); n != 1 {
			t.Fatalf("%d changes, want one", n)
		}
		if err := <-changes; !errors.Is(err, errLate) {
			t.Errorf("%v is reported, want that it is late", err)
		}
		if gaps := h.Gaps(time.Now().Add(-time.Minute)); len(gaps) != 1 || gaps[0].Reason != reasonWaits {
			t.Errorf("gaps %v; want that of now", gaps)
		}
		close(goesOn)
		<-ended
		if err := <-changes; err != nil || len(changes) != 0 {
			t.Errorf("%v is reported, and %d more; want a recovery", err, len(changes))
		}
	})
}

// A stop does not wait for a disk that hangs.
func TestAStopLeavesAWriteThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, t.TempDir(), prometheus.NewRegistry())
		var changes []error
		h.cfg.Changed = func(err error) { changes = append(changes, err) }
		goesOn := h.hang()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		synctest.Wait()
		stop()
		began := time.Now()
		err := <-ended
		if took := time.Since(began); err != nil || took != stopTimeout || len(changes) != 1 || !errors.Is(changes[0], errAbandoned) {
			t.Errorf("after %v: %v, changes %v; want after %v that it is abandoned", took, err, changes, stopTimeout)
		}
		close(goesOn)
		synctest.Wait()
	})
}
