// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// version is that of the records, see the package's documentation. A directory of a later version
	// is not opened.
	version = 1
	// format is that of Pebble's own files. A later one is set together with a new version, because
	// there is no way back.
	format = pebble.FormatValueSeparation

	versionFile = "OVERDUE" // says what the directory is, before anything in it is opened
	versionText = "overdue broker directory, version "
	database    = "pebble"

	memTableBytes = 64 << 20 // most messages are settled before they leave it, and so are never written again
	cacheBytes    = 32 << 20
	dropDelay     = 5 * time.Second // until a dropped queue gives its space back, if nothing else is written
)

// A Store is an open directory. Its methods may be called from any goroutine.
type Store struct {
	dir  string
	db   *pebble.DB
	lock *pebble.Lock
	fs   *patientFS
	committer

	copying chan struct{} // holds a value while a Backup runs, and once Close has begun

	reading sync.RWMutex // held for reading while contents are read
	closed  bool         // guarded by reading

	ofEntity, ofAll int64        // see KeepInMemory
	inMemory        atomic.Int64 // bytes of contents of all queues
}

// An Observer hears what a store does. Its methods must neither wait nor call the store.
type Observer interface {
	// Committed says that a commit of so many changes is on disk.
	Committed(changes int, took time.Duration)
	// Troubled says that Store.Trouble is another one, nil at the end of trouble. While Open waits
	// for room, nothing else shows it.
	Troubled(err error)
}

type nobody struct{}

func (nobody) Committed(int, time.Duration) {}
func (nobody) Troubled(error)               {}

// Open is OpenObserved without an observer.
func Open(dir string) (*Store, error) { return OpenObserved(dir, nobody{}) }

// OpenObserved opens the directory, and makes it where there is none. On a disk without room it
// waits until there is some. Errors: ErrLocked, ErrNewer, ErrForeign, ErrDamaged, and those of the
// file system. It changes nothing when it fails with one of the first three.
func OpenObserved(dir string, o Observer) (*Store, error) {
	s, err := openIn(dir, vfs.Default, o, retryInterval)
	return s, ofDirectory(dir, err)
}

func ofDirectory(dir string, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %s", err, dir)
	}
	return nil
}

func openIn(dir string, fs vfs.FS, o Observer, retryInterval time.Duration) (*Store, error) {
	if err := makeDirectory(dir, fs); err != nil {
		return nil, err
	}
	if err := checkOurs(dir, fs); err != nil { // a lock is a file, which is not for others' directories
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, lockError(err)
	}
	unlock := func(err error) error { return errors.Join(err, lock.Close()) }
	if err := checkVersion(dir, fs); err != nil {
		return nil, unlock(err)
	}
	if err := fs.RemoveAll(fs.PathJoin(dir, checkpoint)); err != nil {
		return nil, unlock(err)
	}
	patient := newPatientFS(fs, o, retryInterval)
	db, err := openDatabase(fs.PathJoin(dir, database), patient, false)
	if err != nil {
		return nil, unlock(err)
	}
	s := &Store{
		dir:  dir,
		db:   db,
		lock: lock,
		fs:   patient,

		copying: make(chan struct{}, 1),

		ofEntity: entityContentBytes,
		ofAll:    contentBytes,
	}
	if err := cmp.Or(s.readHighest(), s.readNumbers()); err != nil {
		return nil, unlock(errors.Join(err, db.Close()))
	}
	if err := s.reserveNumbers(); err != nil {
		return nil, unlock(errors.Join(err, db.Close()))
	}
	s.start(db, patient)
	return s, nil
}

// Close writes what waits and closes the directory. After a failure it leaves the directory to the
// end of the process, since the disk answers nobody. It waits for a Backup.
func (s *Store) Close() error {
	if err := s.stop(); err != nil {
		return err
	}
	for copied := false; !copied; {
		if err := s.fs.stuck(); err != nil {
			return err
		}
		select {
		case s.copying <- struct{}{}:
			copied = true
		case <-s.troubled:
		}
	}
	s.reading.Lock()
	s.closed = true
	s.reading.Unlock()
	return errors.Join(s.db.Close(), s.lock.Close())
}

// Trouble is why nothing can be written: queue.ErrNoRoom, queue.ErrNotStored or nil.
func (s *Store) Trouble() error { return s.fs.trouble() }

// Bytes is how much the files of the directory hold.
func (s *Store) Bytes() (sum int64, err error) {
	db := s.fs.PathJoin(s.dir, database)
	names, err := s.fs.List(db)
	for _, name := range names {
		info, err := s.fs.Stat(s.fs.PathJoin(db, name))
		switch {
		case err == nil:
			sum += info.Size()
		case !errors.Is(err, os.ErrNotExist): // it was removed meanwhile
			return 0, err
		}
	}
	return sum, err
}

// makeDirectory makes dir and what it lies in, so that a loss of power takes none of it.
func makeDirectory(dir string, fs vfs.FS) error {
	_, err := fs.Stat(dir)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := fs.PathDir(dir)
	if parent != dir && parent != "." {
		if err := makeDirectory(parent, fs); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDirectory(parent, fs)
}

func syncDirectory(dir string, fs vfs.FS) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func lockError(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) && (number == syscall.EAGAIN || number == syscall.EWOULDBLOCK) ||
		strings.Contains(err.Error(), "lock held by current process") {
		return ErrLocked
	}
	return err
}

// checkVersion reads what the directory says of itself, and writes it into one that is empty.
func checkVersion(dir string, fs vfs.FS) error {
	err := readVersion(dir, fs)
	if errors.Is(err, ErrNone) {
		return writeVersion(dir, fs)
	}
	return err
}

// checkOurs refuses a directory that is neither empty nor one that this program can read.
func checkOurs(dir string, fs vfs.FS) error {
	err := readVersion(dir, fs)
	if errors.Is(err, ErrNone) {
		return checkEmpty(dir, fs)
	}
	return err
}

// readVersion returns nil when the directory is one that this program can read.
func readVersion(dir string, fs vfs.FS) error {
	f, err := fs.Open(fs.PathJoin(dir, versionFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ErrNone
	case err != nil:
		return err
	}
	text, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	number, ours := bytes.CutPrefix(bytes.TrimSuffix(text, []byte("\n")), []byte(versionText))
	has, err := strconv.Atoi(string(number))
	switch {
	case len(text) == 0:
		return ErrNone // the process ended between Create and Write
	case !ours || err != nil || has < 1:
		return fmt.Errorf("%w: %s cannot be read", ErrDamaged, versionFile)
	case has > version:
		return fmt.Errorf("%w: it has %d, this one knows %d", ErrNewer, has, version)
	}
	return nil
}

// checkEmpty refuses a directory in which there is something that Open has not made.
func checkEmpty(dir string, fs vfs.FS) error {
	names, err := fs.List(dir)
	for _, name := range names {
		if name != versionFile && name != versionFile+".new" && name != lockFile && name != "lost+found" {
			return fmt.Errorf("%w: %s", ErrForeign, name)
		}
	}
	return err
}

// writeVersion makes an empty directory ours. The file has another name until it is whole.
func writeVersion(dir string, fs vfs.FS) error {
	if err := checkEmpty(dir, fs); err != nil {
		return err
	}
	path := fs.PathJoin(dir, versionFile)
	f, err := fs.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%d\n", versionText, version)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDirectory(dir, fs)
}

func openDatabase(path string, fs vfs.FS, readOnly bool) (db *pebble.DB, err error) {
	// Pebble gives up by Fatalf, which must not return. While it is opened, that is an error of Open.
	defer func() {
		if gone, ok := recover().(fatal); ok {
			db, err = nil, fmt.Errorf("%w: %s", ErrDamaged, string(gone))
		}
	}()
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	db, err = pebble.Open(path, &pebble.Options{
		FS:                 fs,
		ReadOnly:           readOnly,
		FormatMajorVersion: format,
		Cache:              cache,
		MemTableSize:       memTableBytes,
		Logger:             logger{},

		FlushDelayDeleteRange: dropDelay,
	})
	switch {
	case err == nil:
		return db, nil
	case pebble.IsCorruptionError(err), errors.Is(err, os.ErrNotExist), errors.Is(err, pebble.ErrDBDoesNotExist): // what it makes itself is not missing
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case strings.Contains(err.Error(), "unknown format major version"):
		return nil, fmt.Errorf("%w: %w", ErrNewer, err)
	}
	return nil, err
}

// logger drops the messages of Pebble. Those that matter come as errors, too.
type logger struct{}

// fatal is what Fatalf ends with, since it must not return.
type fatal string

func (logger) Infof(string, ...any)              {}
func (logger) Errorf(string, ...any)             {}
func (logger) Fatalf(format string, args ...any) { panic(fatal(fmt.Sprintf(format, args...))) }
