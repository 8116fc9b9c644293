// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenReadOnly opens a directory to look into it. It changes no byte: what is appended is dropped.
// Nobody else can open the directory meanwhile. Errors: ErrNone and those of Open but ErrForeign.
func OpenReadOnly(dir string) (*Store, error) {
	s, err := openReadOnly(dir, vfs.Default)
	return s, ofDirectory(dir, err)
}

func openReadOnly(dir string, under vfs.FS) (*Store, error) {
	fs := readOnlyFS{under}
	lock, err := lockToRead(dir, fs)
	if err != nil {
		return nil, err
	}
	patient := newPatientFS(fs, nobody{}, retryInterval)
	db, err := openDatabase(fs.PathJoin(dir, database), patient, true)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s := &Store{
		dir:  dir,
		db:   db,
		lock: lock,
		fs:   patient,

		copying: make(chan struct{}, 1),
	}
	if err := cmp.Or(s.readHighest(), s.readNumbers()); err != nil {
		return nil, errors.Join(err, db.Close(), lock.Close())
	}
	s.over = true
	s.start(db, patient)
	return s, nil
}

// Probe looks at a directory from outside and changes nothing. Errors: ErrLocked, ErrNewer,
// ErrForeign, ErrDamaged, ErrNone of an empty one, and those of the file system.
func Probe(dir string) error {
	fs := readOnlyFS{vfs.Default}
	lock, err := lockToRead(dir, fs)
	switch {
	case err == nil:
		return lock.Close()
	case errors.Is(err, ErrNone):
		return cmp.Or(checkEmpty(dir, fs), err)
	}
	return err
}

// FreeBytes is how much room the disk of a directory has.
func FreeBytes(dir string) (uint64, error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return usage.AvailBytes, err
}

// lockToRead takes the lock of a directory that this program can read.
func lockToRead(dir string, fs readOnlyFS) (*pebble.Lock, error) {
	info, err := fs.Stat(dir)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%w: it is a file", ErrNone)
	}
	if err := readVersion(dir, fs); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, lockError(err)
	}
	return lock, nil
}

// A readOnlyFS changes nothing, whatever Pebble may want.
type readOnlyFS struct{ vfs.FS }

var errReadOnly = errors.New("store: a directory that is only read is not written")

// Lock makes no file of locks: where there is none, nobody has the directory.
func (r readOnlyFS) Lock(name string) (io.Closer, error) {
	if _, err := r.Stat(name); errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	return r.FS.Lock(name)
}

// The operations of a file system that change it.

func (readOnlyFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnly }

func (readOnlyFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnly
}

func (readOnlyFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly
}

func (readOnlyFS) Link(string, string) error          { return errReadOnly }
func (readOnlyFS) Rename(string, string) error        { return errReadOnly }
func (readOnlyFS) Remove(string) error                { return errReadOnly }
func (readOnlyFS) RemoveAll(string) error             { return errReadOnly }
func (readOnlyFS) MkdirAll(string, os.FileMode) error { return errReadOnly }
func (r readOnlyFS) Unwrap() vfs.FS                   { return r.FS }
