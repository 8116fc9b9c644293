// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	past "overdue/internal/history"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/program"
	"overdue/internal/testing/racetest"
)

// A monitor is killed with SIGKILL at the instant at which it begins to write its history. What it
// wrote before is there after a restart, and the file is never damaged.
func TestMonitorIsKilledWhileItWritesItsHistory(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	t.Parallel() // it waits, mostly
	h := &hooktest.Hook{}
	sink := httptest.NewServer(h)
	defer sink.Close()
	p := newProcesses(t, program.Build(t), sink.URL)
	directory := t.TempDir()
	file := filepath.Join(directory, "history.db")
	p.start("broker")
	p.start("proxy")
	missed := func(r *running) (ids []string) {
		t.Helper()
		found, err := past.Fetch[past.Fetched](t.Context(), r.admin, past.MissedPath, "orders", time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for i := range found.Found {
			ids = append(ids, found.Found[i].Data.MessageID)
		}
		slices.Sort(ids)
		return ids
	}
	const seldom = 50 * time.Millisecond // for what costs more than a moment to ask
	until := func(what string, pause time.Duration, done func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(pause) {
			if time.Now().After(end) {
				t.Fatalf("a minute later, %s is not the case", what)
			}
		}
	}
	const rounds, each = 2, 20
	var wrote []string // for sure
	for round := range rounds {
		r := p.begin("monitor", "OVERDUE_HISTORY_DIRECTORY="+directory)
		p.ready(r)
		if got := missed(r); !subset(wrote, got) {
			t.Fatalf("after a kill in round %d the history has %v, want all of %v", round, got, wrote)
		}
		send := func(part string) {
			before := len(slices.Compact(h.Subjects()))
			for i := range each {
				p.send(fmt.Sprintf("m-%d-%s-%02d", round, part, i), 100*time.Millisecond)
			}
			until("all are notified", seldom, func() bool { return len(slices.Compact(h.Subjects())) == before+each })
		}
		send("first")
		var b []byte
		until("the first are written", seldom, func() (done bool) {
			var err error
			if b, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
			for i := range each {
				if !bytes.Contains(b, fmt.Appendf(nil, "m-%d-first-%02d", round, i)) {
					return false
				}
			}
			return true
		})
		// Others may be in memory alone.
		wrote = slices.DeleteFunc(missed(r), func(id string) bool { return !bytes.Contains(b, []byte(id)) })
		send("second")
		at := modified(t, file)
		until("the second are about to be written", time.Millisecond, func() bool { return modified(t, file) != at })
		p.end(r, syscall.SIGKILL)
	}
	r := p.begin("monitor", "OVERDUE_HISTORY_DIRECTORY="+directory)
	p.ready(r)
	if got := missed(r); !subset(wrote, got) {
		t.Errorf("the history has %v, want all of %v", got, wrote)
	}
	if _, err := os.Stat(filepath.Join(directory, "history.damaged.db")); err == nil {
		t.Error("a file was damaged and set aside")
	}
}

func subset(part, all []string) bool {
	return !slices.ContainsFunc(part, func(id string) bool { return !slices.Contains(all, id) })
}

func modified(t *testing.T, file string) time.Time {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}
