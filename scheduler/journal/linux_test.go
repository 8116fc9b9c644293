// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

// A disk that takes no more refuses companions in one sentence. What is on it stays, and is written
// to the monitor queue and taken out though there is no room.
func TestAFullDiskRefusesAndLosesNothing(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		var n news
		j, stop := start(t, s, directory, func(c *journal.Config) { c.Changed = n.changed })
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("first", time.Now().Add(time.Hour)))
		restore := limitFiles(t, 128<<10)
		kept, refused := []string{"first"}, error(nil)
		for i := 0; refused == nil && i < 2000; i++ {
			id := fmt.Sprint("m-", i)
			if refused = j.Begin(one(id, time.Now().Add(time.Hour+time.Duration(i)*time.Second)))(t.Context()); refused == nil {
				kept = append(kept, id)
			}
		}
		if refused == nil || !strings.Contains(refused.Error(), "overdue.journal") || strings.Contains(refused.Error(), "\n") {
			t.Fatalf("a companion that the disk does not take = %v, want one sentence that names the journal", refused)
		}
		if got := n.count("journal takes no companions"); got != 1 {
			t.Errorf("the full disk was reported %d times, want once: %q", got, n.events)
		}
		end()
		time.Sleep(5 * time.Minute)
		if st := j.Status(); st.Companions != 0 {
			t.Errorf("%d companions are left in the journal, want none", st.Companions)
		}
		seen := map[string]int{}
		for _, id := range ids(t, ns) {
			seen[id]++
		}
		for _, id := range kept {
			if seen[id] == 0 {
				t.Errorf("the monitor queue has no companion for %s, which was kept", id)
			}
		}
		restore()
		end = outages["the queue is full"](t, ns)
		schedule(t, j, one("with room again", time.Now().Add(time.Hour)))
		stop()
		j, _ = start(t, s, directory)
		if st := j.Status(); st.Companions != 1 {
			t.Errorf("status %+v of the reopened file, want one companion", st)
		}
		end()
	})
}

// limitFiles lets no file grow beyond a size, until restore.
func limitFiles(t *testing.T, size uint64) (restore func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ) // then a write fails instead
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	restore = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	return restore
}
