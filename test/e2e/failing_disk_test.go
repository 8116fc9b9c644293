// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"overdue/internal/testing/racetest"
)

// The disk is a file with holes, on a file system that is filled. Its file system believes that it
// has room. A write to a hole fails, at the latest when it is synced.
func TestBrokerOnAFailingDiskShowsWhatItHasAndLosesNothing(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	t.Parallel()
	folder := t.TempDir()
	below, disk, at := filepath.Join(folder, "below"), filepath.Join(folder, "below", "disk"), filepath.Join(folder, "at")
	mount(t, below, "-t", "tmpfs", "-o", "size=96m", "tmpfs")
	if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 1<<30)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", disk).CombinedOutput(); err != nil {
		t.Skipf("no file system can be made (%v: %s)", err, out)
	}
	unmount := mount(t, at, "-o", "loop", disk)
	p := newDurable(t, filepath.Join(at, "data"), "http://127.0.0.1:9/")
	r := p.begin("broker", p.settings...)
	p.ready(r)
	s := &sender{url: "http://" + p.broker + "/orders/messages"}
	body := bytes.Repeat([]byte("x"), 240<<10)
	s.early(t, body)
	filler := filepath.Join(below, "filler")
	fill(t, filler)
	s.refused(p, r, body, "has failed: what is sent and settled is refused until a restart")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	// The kernel has dropped pages that it could not write. A second sync would succeed all the same.
	if status := s.try("late", body); status == http.StatusCreated {
		t.Error("a send to a disk that has failed is acknowledged, although what came before is missing there")
	}
	p.end(r, syscall.SIGKILL)
	unmount()
	mount(t, at, "-o", "loop", disk)
	p.overdue("broker", "check", filepath.Join(at, "data"))
	p.start("broker", p.settings...)
	if id := p.lacks(s.list()); id != "" {
		t.Errorf("%d messages were acknowledged, and %s is lost", len(s.list()), id)
	}
}

// mount mounts a file system, until the end of the test at the latest. It skips the test where it
// may not.
func mount(t *testing.T, at string, args ...string) (unmount func()) {
	t.Helper()
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", append(args, at)...).CombinedOutput(); err != nil {
		t.Skipf("nothing can be mounted (%v: %s)", err, out)
	}
	var once sync.Once
	unmount = func() {
		once.Do(func() {
			if err := syscall.Unmount(at, 0); err != nil {
				t.Errorf("unmount %s: %v", at, err)
			}
		})
	}
	t.Cleanup(unmount)
	return unmount
}
