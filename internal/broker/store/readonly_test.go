// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestDirectoryThatIsReadDoesNotChange(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.PutEntity(1, []byte("one"))
	s.Queue(1).Append(added(1, whole()))
	if err := errors.Join(s.Wait(), s.db.Flush()); err != nil {
		t.Fatal(err)
	}
	s.Queue(1).Append(added(2, whole())) // it is in the log alone
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReadOnly(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("OpenReadOnly of a directory in use = %v, want %v", err, ErrLocked)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	for range 2 {
		s, err := OpenReadOnly(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); !errors.Is(err, ErrLocked) {
			t.Errorf("Open of a directory that is being read = %v, want %v", err, ErrLocked)
		}
		if all, _ := messagesOf(t, s, 1); len(all) != 2 {
			t.Errorf("there are %d messages, want 2", len(all))
		}
		s.PutEntity(2, []byte("two"))
		s.Queue(1).Append(added(3, whole()))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(before, filesOf(t, dir)); diff != "" {
			t.Fatalf("the directory has changed (-before +after):\n%s", diff)
		}
	}
}

func TestOnlyDirectoriesOfABrokerAreRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		dir:                           ErrNone,
		filepath.Join(dir, "file"):    ErrNone,
		filepath.Join(dir, "nothing"): os.ErrNotExist,
	} {
		if _, err := OpenReadOnly(path); !errors.Is(err, want) {
			t.Errorf("OpenReadOnly(%s) = %v, want %v", path, err, want)
		}
	}
	if files := filesOf(t, dir); len(files) != 1 {
		t.Errorf("files have come: %v", files)
	}
}
