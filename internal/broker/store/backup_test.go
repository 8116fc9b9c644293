// SPDX-License-Identifier: Apache-2.0

package store

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"overdue/internal/broker/queue"
)

// unpack writes a copy into a directory of its own, as an operator does who restores it.
func unpack(t testing.TB, copied io.Reader) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for r := tar.NewReader(copied); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.Mkdir(path, h.FileInfo().Mode()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(path, data, h.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// filesOf are the contents of all files below a directory.
func filesOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// numbersOf loads a directory to read and returns the records of queue 1.
func numbersOf(t testing.TB, dir string) map[int64]bool {
	t.Helper()
	s, err := OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := messagesOf(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	records := map[int64]bool{}
	for i := range all {
		records[all[i].Record] = true
	}
	return records
}

func TestBackupUnderLoadHoldsWhatWasAcknowledgedBefore(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stop, acknowledged := make(chan struct{}), make(chan int64)
	var sending sync.WaitGroup
	sending.Go(func() {
		defer close(acknowledged)
		for record := int64(1); ; record++ {
			s.Queue(1).Append(added(record, whole()))
			if err := s.Wait(); err != nil {
				t.Errorf("Wait = %v", err)
				return
			}
			select {
			case acknowledged <- record:
			case <-stop:
				return
			}
		}
	})
	for range 3 {
		var before int64
		for range 50 {
			before = <-acknowledged
		}
		var copied bytes.Buffer
		ended := make(chan error, 1)
		go func() { ended <- s.Backup(&copied) }()
		for running := true; running; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
				running = false
			case <-acknowledged: // the load goes on
			}
		}
		found := numbersOf(t, unpack(t, &copied))
		for record := int64(1); record <= before; record++ {
			if !found[record] {
				t.Errorf("the copy lacks message %d, which was acknowledged before", record)
			}
		}
		for record := int64(len(found)); record > 0; record-- {
			if !found[record] {
				t.Errorf("the copy has %d messages, but not number %d: it is no beginning of the history", len(found), record)
			}
		}
	}
	close(stop)
	sending.Wait()
	if _, err := os.Stat(filepath.Join(s.dir, checkpoint)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a backup needs is still there: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(io.Discard); !errors.Is(err, ErrCopying) {
		t.Errorf("Backup after Close = %v, want %v", err, ErrCopying)
	}
}

func TestBackupOfADirectoryAtRestIsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Queue(1).Append(added(1, whole()))
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := Backup(dir, io.Discard); !errors.Is(err, ErrLocked) {
		t.Errorf("Backup of a directory in use = %v, want %v", err, ErrLocked)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	var copied bytes.Buffer
	if err := Backup(dir, &copied); err != nil {
		t.Fatal(err)
	}
	if found := numbersOf(t, unpack(t, &copied)); !found[1] {
		t.Errorf("the copy has %v, want message 1", found)
	}
	if diff := gocmp.Diff(before, filesOf(t, dir)); diff != "" {
		t.Errorf("the directory has changed (-before +after):\n%s", diff)
	}
	if err := Backup(t.TempDir(), io.Discard); !errors.Is(err, ErrNone) {
		t.Errorf("Backup of an empty directory = %v, want %v", err, ErrNone)
	}
}

func TestBackupThatIsNotTakenFailsAndLeavesNothing(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(w); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Backup to a reader that is gone = %v, want %v", err, io.ErrClosedPipe)
	}
	if err := s.Backup(io.Discard); err != nil {
		t.Errorf("the next backup = %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryWithoutRoomIsNotCopied(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	d.set(func() error { return syscall.ENOSPC }, nil)
	s.Queue(1).Append(added(1, whole()))
	if err := s.Wait(); !errors.Is(err, queue.ErrNoRoom) {
		t.Fatal(err)
	}
	if err := s.Backup(io.Discard); !errors.Is(err, queue.ErrNoRoom) {
		t.Errorf("Backup on a full disk = %v, want %v", err, queue.ErrNoRoom)
	}
	d.set(nil, nil)
}

// A process that was killed in a backup leaves files, which take room and are no part of the
// directory.
func TestLeftoversOfABackupAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, checkpoint)
	for range 2 {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Open the leftover is there: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(left, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}
