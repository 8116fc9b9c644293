// SPDX-License-Identifier: Apache-2.0

package store

import (
	"archive/tar"
	"errors"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	lockFile   = "LOCK"
	checkpoint = "checkpoint" // in the directory while Backup runs: links to files of the database
)

// Backup writes a copy of the directory as a tar. It has everything that was on disk when Backup
// was called, and what came later in part, but never half of a step. Errors: ErrCopying,
// queue.ErrNoRoom, queue.ErrNotStored, and those of w and of the file system.
func (s *Store) Backup(w io.Writer) (err error) {
	select {
	case s.copying <- struct{}{}:
		defer func() { <-s.copying }()
	default:
		return ErrCopying
	}
	if err := s.Trouble(); err != nil { // the copy needs room, and would wait for it
		return err
	}
	copied := s.fs.PathJoin(s.dir, checkpoint)
	defer func() { err = errors.Join(err, s.fs.RemoveAll(copied)) }()
	if err := s.db.Checkpoint(copied); err != nil {
		return err
	}
	return writeArchive(w, s.fs, s.dir, copied)
}

// Backup writes a copy of a directory that nobody has open as a tar. Errors: those of OpenReadOnly,
// above all ErrLocked, and those of w.
func Backup(dir string, w io.Writer) error {
	fs := readOnlyFS{vfs.Default}
	lock, err := lockToRead(dir, fs)
	if err == nil {
		err = errors.Join(writeArchive(w, fs, dir, fs.PathJoin(dir, database)), lock.Close())
	}
	return ofDirectory(dir, err)
}

// writeArchive writes a directory whose database is at db. Nobody writes there meanwhile.
func writeArchive(w io.Writer, fs vfs.FS, dir, db string) error {
	a := archive{tar.NewWriter(w), fs}
	err := errors.Join(
		a.addFile(fs.PathJoin(dir, versionFile), versionFile),
		// So that a check of what is unpacked finds a file to lock, and makes none.
		a.WriteHeader(&tar.Header{Name: lockFile, Mode: 0o600}),
		a.WriteHeader(&tar.Header{Name: database + "/", Typeflag: tar.TypeDir, Mode: 0o700}))
	if err != nil {
		return err
	}
	names, err := fs.List(db)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if name == lockFile {
			continue
		}
		if err := a.addFile(fs.PathJoin(db, name), database+"/"+name); err != nil {
			return err
		}
	}
	return a.Close()
}

type archive struct {
	*tar.Writer
	fs vfs.FS
}

func (a *archive) addFile(path, name string) (err error) {
	f, err := a.fs.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header := tar.Header{
		Name:    name,
		Mode:    0o600,
		Size:    info.Size(),
		ModTime: info.ModTime(),
	}
	if err := a.WriteHeader(&header); err != nil {
		return err
	}
	_, err = io.Copy(a, f)
	return err
}
