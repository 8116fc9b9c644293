// SPDX-License-Identifier: Apache-2.0

// Package directory is what processes and operators do with the directory of a broker: open it,
// look at it, copy it. Its errors are sentences that say what to do.
package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/store"
)

var (
	errNoParent = errors.New("the directory above does not exist")
	errFile     = errors.New("not a directory")
)

// Open opens a directory for a broker, and makes it in one that exists. It does not make the
// directory above: where that is missing, a volume is not mounted or a name is misspelt. On a disk
// without room it waits until there is some, or ctx ends. See store.OpenObserved.
func Open(ctx context.Context, dir string, o store.Observer) (*store.Store, error) {
	if err := checkPlace(dir); err != nil {
		return nil, Explain(dir, err)
	}
	s, err := openWithin(ctx, func() (*store.Store, error) { return store.OpenObserved(dir, o) })
	if err != nil {
		return nil, Explain(dir, err)
	}
	return s, nil
}

// openWithin opens a store, and gives up when ctx ends. The file system does not hear of that: what
// is opened later is closed at once, unless the process has ended before.
func openWithin(ctx context.Context, open func() (*store.Store, error)) (s *store.Store, err error) {
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		s, err = open()
	}()
	select {
	case <-opened:
		return s, err
	case <-ctx.Done():
		go func() {
			if <-opened; err == nil {
				_ = s.Close() // nothing was written
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// checkPlace refuses a place that cannot have a directory.
func checkPlace(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_, err = os.Stat(filepath.Dir(dir))
		if errors.Is(err, fs.ErrNotExist) {
			return errNoParent
		}
		return err
	case err == nil && !info.IsDir():
		return errFile
	}
	return err
}

// An explained error is a sentence, with the error behind it.
type explained struct {
	sentence string
	cause    error
}

func (e *explained) Error() string { return e.sentence }
func (e *explained) Unwrap() error { return e.cause }

// Explain makes an error of a store a sentence that says what to do.
func Explain(dir string, err error) error {
	says := func(format string, args ...any) error { return &explained{fmt.Errorf(format, args...).Error(), err} }
	switch {
	case errors.Is(err, store.ErrLocked):
		return says("%s is in use by another process; stop that one, or choose another directory", dir)
	case errors.Is(err, store.ErrNewer):
		return says("%s was written by a later version of Overdue; run that version, or restore a backup of this one", dir)
	case errors.Is(err, store.ErrForeign):
		return says("%s has files of something else (%s); choose an empty directory, or one that Overdue has written", dir, detail(dir, err, store.ErrForeign))
	case errors.Is(err, store.ErrNone):
		return says("%s is not the directory of a broker; give the one that broker.directory names", dir)
	case errors.Is(err, store.ErrDamaged), errors.Is(err, broker.ErrDamaged):
		return says("%s is damaged (%s); restore a backup into an empty directory; `overdue broker check` shows what can be read", dir, detail(dir, err, store.ErrDamaged))
	case errors.Is(err, store.ErrCopying):
		return says("%s is being copied by another backup; try again when that has ended", dir)
	case errors.Is(err, queue.ErrNoRoom):
		return says("the disk of %s is full; make room, or stop the process that has the directory and try again", dir)
	case errors.Is(err, queue.ErrNotStored):
		return says("the disk of %s has failed (%w); repair it, then start the process again", dir, err)
	case errors.Is(err, errNoParent):
		return says("%s cannot be made because %s does not exist; mount its volume, or make that directory", dir, filepath.Dir(dir))
	case errors.Is(err, errFile), errors.Is(err, syscall.ENOTDIR):
		return says("%s is a file or lies below one; choose a directory", dir)
	case errors.Is(err, fs.ErrPermission):
		return says("this user may not read and write %s; give the directory to the user that runs Overdue, or choose another", dir)
	case errors.Is(err, syscall.EROFS):
		return says("%s is on a file system that cannot be written; mount it for writing, or choose another directory", dir)
	case errors.Is(err, fs.ErrNotExist):
		return says("%s does not exist; give the directory that broker.directory names", dir)
	}
	return says("%s cannot be used: %w", dir, err)
}

// detail is what a store adds to one of its errors.
func detail(dir string, err, of error) string {
	return strings.TrimPrefix(strings.TrimSuffix(err.Error(), ": "+dir), of.Error()+": ")
}

// IsMisplaced reports whether an error of Open is one of the setting that names the directory, and
// not of the directory.
func IsMisplaced(err error) bool {
	for _, misplaced := range []error{store.ErrForeign, errNoParent, errFile, syscall.ENOTDIR} {
		if errors.Is(err, misplaced) {
			return true
		}
	}
	return false
}

// DescribeTrouble is one sentence about Store.Trouble, "" where there is none.
func DescribeTrouble(dir string, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, queue.ErrNoRoom):
		return fmt.Sprintf("the disk of %s is full: what is sent and settled is refused until there is room, messages can still be peeked", dir)
	}
	return fmt.Sprintf("the disk of %s has failed: what is sent and settled is refused until a restart, messages can still be peeked (%s)", dir, err)
}
