// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/testing/testseed"
)

// writerVariable names the directory in which this binary writes a history until it is killed.
const writerVariable = "OVERDUE_TEST_HISTORY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		writeUntilKilled(dir)
		return
	}
	os.Exit(m.Run())
}

// batchOf is how many events each write of writeUntilKilled has.
const batchOf = 20

func writeUntilKilled(dir string) {
	h, aside, err := Open(Config{Directory: dir, Keep: 1000 * time.Hour, MaxSize: 64 << 20, Metrics: prometheus.NewRegistry(), Changed: func(err error) { panic(err) }})
	if err != nil || aside != "" {
		panic(fmt.Sprint("Open: ", aside, err))
	}
	known, _, err := h.Missed(context.Background(), time.Time{}, all, 1<<20)
	if err != nil {
		panic(err)
	}
	for n := len(known) / batchOf; ; n++ {
		b := batch{}
		for i := range batchOf {
			e := missEvent(fmt.Sprint("m-", n, "-", i, strings.Repeat("x", 200)), start.Add(time.Duration(n)*time.Second))
			b.missed = append(b.missed, Notification{Event: e})
		}
		if err := h.file.write(&b, start, start); err != nil {
			panic(err)
		}
		fmt.Println(n + 1) // as many are on disk
	}
}

// Whenever the process is killed, what was written stays, a write counts as a whole or not at all,
// and the file is never damaged.
func TestAProcessIsKilledInMidWrite(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(testseed.Of(t), 0))
	written := 0
	for range 15 {
		cmd := exec.Command(binary)
		cmd.Env = append(os.Environ(), writerVariable+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		after := 1 + rng.IntN(5)
		for range after {
			if !lines.Scan() {
				t.Fatalf("the writer ended: %v", cmd.Wait())
			}
			if _, err := fmt.Sscan(lines.Text(), &written); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &written); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait() // it was killed
	}
	h, aside, err := Open(Config{Directory: dir, Keep: time.Hour, MaxSize: 64 << 20, Metrics: prometheus.NewRegistry(), Changed: func(error) {}})
	if err != nil || aside != "" {
		t.Fatalf("Open = %q, %v, want the file as it is", aside, err)
	}
	defer func() { _ = h.file.close() }()
	found, _, err := h.Missed(context.Background(), time.Time{}, all, 1<<20)
	if err != nil || len(found)%batchOf != 0 || len(found)/batchOf < written || len(found)/batchOf > written+1 {
		t.Errorf("%d events are left of %d writes of %d, %v", len(found), written, batchOf, err)
	}
}

// full mounts a file system of a MiB and leaves room for some bytes. free makes room.
func full(t *testing.T, room int) (dir string, free func()) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a file system of a test takes root: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20-room), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFullDiskCostsNothingThatFitsInMemory(t *testing.T) {
	dir, free := full(t, 128<<10)
	var changes []error
	h, _, err := Open(Config{Directory: dir, Keep: time.Hour, MaxSize: 1 << 20, Metrics: prometheus.NewRegistry(), Changed: func(err error) { changes = append(changes, err) }})
	if err != nil {
		t.Fatal(err)
	}
	h.clock.resume(h.file.clock, start)
	const rounds, each = 20, 20
	for i := range rounds {
		for j := range each {
			miss(t, h, fmt.Sprint("m-", i, "-", j, strings.Repeat("x", 100)), start)
		}
		h.flush(t.Context(), start.Add(time.Duration(i)*interval))
		if _, _, err := h.Missed(context.Background(), time.Time{}, all, 10); err != nil {
			t.Fatalf("it cannot be read while the disk is full: %v", err)
		}
	}
	if len(changes) != 1 || !errors.Is(changes[0], syscall.ENOSPC) {
		t.Fatalf("changes %v, want one: no space", changes)
	}
	free()
	h.flush(t.Context(), start.Add(rounds*interval))
	if len(changes) != 2 || changes[1] != nil || h.Dropped() != 0 {
		t.Errorf("changes %v, %d dropped; want a recovery and none", changes, h.Dropped())
	}
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
	h, aside, err := Open(h.cfg)
	if err != nil || aside != "" {
		t.Fatalf("Open = %q, %v, want the file as it is", aside, err)
	}
	defer func() { _ = h.file.close() }()
	if found, _, err := h.Missed(context.Background(), time.Time{}, all, 1000); err != nil || len(found) != rounds*each {
		t.Errorf("%d missed deadlines, %v, want %d", len(found), err, rounds*each)
	}
}

func TestADiskThatIsFullAtTheStart(t *testing.T) {
	dir, free := full(t, 0)
	c := Config{Directory: dir, Keep: time.Hour, MaxSize: 1 << 20, Metrics: prometheus.NewRegistry(), Changed: func(error) {}}
	if h, _, err := Open(c); err == nil {
		t.Fatalf("Open = %v, nil on a full disk", h)
	}
	free()
	h, aside, err := Open(c)
	if err != nil || aside != "" {
		t.Fatalf("Open = %q, %v when there is room again, want a new file", aside, err)
	}
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
}

// However a file is damaged, the process starts, and reads and writes end without a panic.
func TestDamageOfAnyKindIsSurvived(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, prometheus.NewRegistry())
	for i := range 300 {
		miss(t, h, fmt.Sprint("m-", i, strings.Repeat("x", 300)), start.Add(time.Duration(i)*time.Second))
	}
	h.flush(t.Context(), start)
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(testseed.Of(t), 0))
	for i := range 60 {
		bad := append([]byte{}, good...)
		switch i % 4 {
		case 0: // its end is missing
			bad = bad[:rng.IntN(len(bad))]
		case 1: // a page is of zeros
			clear(bad[rng.IntN(len(bad)/4096)*4096:][:4096])
		case 2: // bytes are others
			for range 1 + rng.IntN(50) {
				bad[rng.IntN(len(bad))] = byte(rng.Uint32())
			}
		case 3: // a page is another one
			copy(bad[rng.IntN(len(bad)/4096)*4096:][:4096], good[rng.IntN(len(good)/4096)*4096:])
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		h, _, err := Open(h.cfg)
		if err != nil {
			t.Fatalf("damage %d: Open = %v, want a history, new if need be", i, err)
		}
		_, _, _ = h.Missed(context.Background(), time.Time{}, all, 1000) // it may say that a record is unreadable
		_ = h.Notifications(t.Context(), "m-1")
		miss(t, h, "after", start)
		h.flush(t.Context(), start)
		if err := h.file.close(); err != nil {
			t.Errorf("damage %d: close: %v", i, err)
		}
	}
}
