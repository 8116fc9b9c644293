// SPDX-License-Identifier: Apache-2.0

//go:build unix

package store

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
)

// Blocks that a file has without bytes in them would be missing for others on the disk, and for the
// store itself.
func TestDirectoryTakesNoRoomAhead(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for record := range int64(3) { // the first write of a file takes nothing ahead anyway
		s.Queue(1).Append(added(record+1, whole()))
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	blocks := int64(0)
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		blocks += int64(info.Sys().(*syscall.Stat_t).Blocks)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if size := blocks * 512; size > 1<<20 {
		t.Errorf("a directory with three messages takes %d bytes of the disk, want less than 1 MiB", size)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
