// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

// A disk that takes no more refuses companions in one sentence. Companions on it stay, and are
// written to the monitor queue and taken out though there is no room.
func TestAFullDiskRefusesAndLosesNothing(t *testing.T) {
	if !alone(t) {
		return
	}
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

// A full disk at the start must keep no app from sending. The journal takes companions as soon as
// there is room, though nobody sends meanwhile: a process that refuses gets no traffic.
func TestAJournalWithoutRoomAtTheStartTakesCompanionsOnceThereIsSome(t *testing.T) {
	if !alone(t) {
		return
	}
	for name, sends := range map[string]bool{"nothing was refused": false, "a companion was refused": true} {
		t.Run(name, func(t *testing.T) {
			directory := filepath.Join(t.TempDir(), "journal")
			setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
				restore := limitFiles(t, 8<<10)
				var n news
				j, stop := start(t, s, directory, func(c *journal.Config) { c.Changed = n.changed })
				if st := j.Status(); st.Refusing == nil || st.Down != nil || n.count("journal takes no companions") != 1 {
					t.Errorf("status %+v, events %q, want that it refuses, once, and that nothing else is wrong", st, n.events)
				}
				schedule(t, j, one("before", time.Now().Add(time.Hour)))
				end := outages["the queue is full"](t, ns)
				if sends {
					if err := j.Begin(one("refused", time.Now().Add(time.Hour)))(t.Context()); err == nil || !strings.Contains(err.Error(), "overdue.journal") {
						t.Errorf("a companion without room and without the queue = %v, want an error that names the journal", err)
					}
				}
				time.Sleep(time.Minute)
				if st := j.Status(); st.Refusing == nil || (st.Down != nil) != sends {
					t.Errorf("status %+v after a minute, want that it refuses", st)
				}
				restore()
				time.Sleep(10 * time.Second)
				if st := j.Status(); st.Refusing != nil || n.count("journal takes companions again") != 1 {
					t.Errorf("status %+v, events %q, want that it takes companions", st, n.events)
				}
				schedule(t, j, one("later", time.Now().Add(time.Hour)))
				stop()
				j, _ = start(t, s, directory)
				if st := j.Status(); st.Companions == 0 {
					t.Errorf("status %+v of the reopened file, want the companion that was kept", st)
				}
				end()
			})
		})
	}
}

// Companions that an earlier run has left go to the monitor queue, room or not.
func TestAJournalOnAFullDiskIsWrittenToTheMonitorQueue(t *testing.T) {
	if !alone(t) {
		return
	}
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, stop := start(t, s, directory)
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("earlier", time.Now().Add(time.Hour)))
		stop()
		end()
		limitFiles(t, 4<<10)
		start(t, s, directory)
		time.Sleep(time.Minute)
		if got := ids(t, ns); len(got) == 0 {
			t.Errorf("the monitor queue has no companion of the earlier run")
		}
	})
}

// alone reports whether the test has the process for itself. Otherwise it runs the test in such a
// process: a limit keeps the test program from writing its own files, too.
func alone(t *testing.T) bool {
	t.Helper()
	const mark = "OVERDUE_TEST_ALONE"
	if os.Getenv(mark) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), mark+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
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
