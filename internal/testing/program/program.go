// SPDX-License-Identifier: Apache-2.0

// Package program builds the command for tests that run it in processes of their own.
package program

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Build builds the command, with flags of go build, and returns the path of the program. Its name is
// overdue, and it lies in a folder of the test.
//
// The go command keeps what it has compiled, but not what it has linked, which takes seconds under
// the race detector. It does leave a program alone that is up to date. So all tests of a checkout
// build into one folder, and each takes a link to the program from there.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the program; not with -short")
	}
	root, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	folder := filepath.Join(strings.TrimSpace(string(root)), "bin", "tests", "overdue"+strings.Join(flags, ""))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(folder, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }() // which unlocks it
	for {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		t.Fatalf("locking %s: %v", lock.Name(), err)
	}
	built := filepath.Join(folder, "overdue")
	args := append(append([]string{"build"}, flags...), "-o", built, "overdue/cmd/overdue")
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	own := filepath.Join(t.TempDir(), "overdue")
	// A build of another checkout's state, or a clean, replaces the file but not what is linked to.
	if err := os.Link(built, own); err != nil {
		err = duplicate(built, own) // the folder of the test is on another disk
		if err != nil {
			t.Fatal(err)
		}
	}
	return own
}

func duplicate(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // which was only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
