// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"overdue/internal/broker/queue"
)

// retryInterval is how soon a full disk is tried again. A tenth of a second is below what a client
// notices.
const retryInterval = 100 * time.Millisecond

// calmIntervals is how many retryIntervals no write may wait for room before the disk counts as one
// that has room.
const calmIntervals = 5

// A patientFS is a file system whose writes do not fail. One that has no room is made again until
// it has. One that fails otherwise never returns: what the operating system has dropped after a
// failed fsync would be missing, although a second fsync succeeds.
type patientFS struct {
	vfs.FS
	interval time.Duration // retryInterval; tests make it short
	observer Observer      // called with mu held, so that it hears of changes in their order

	mu       sync.Mutex
	failure  error // for good
	waiting  int   // writes that wait for room
	full     int   // those, and what has waited just now
	notified func(error)
}

func newPatientFS(fs vfs.FS, o Observer, interval time.Duration) *patientFS {
	return &patientFS{FS: fs, observer: o, interval: interval}
}

// notify calls f with each trouble that begins.
func (p *patientFS) notify(f func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notified = f
}

func (p *patientFS) trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.troubleLocked()
}

// stuck is trouble that keeps a write from its end now.
func (p *patientFS) stuck() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil && p.waiting == 0 {
		return nil
	}
	return p.troubleLocked()
}

func (p *patientFS) troubleLocked() error {
	switch {
	case p.failure != nil:
		return p.failure
	case p.full > 0:
		return queue.ErrNoRoom
	}
	return nil
}

// write does op, which may be done again as long as it fails.
func (p *patientFS) write(op func() error) error {
	err := op()
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	if hasNoRoom(err) {
		p.count(1, 1)
		for hasNoRoom(err) {
			time.Sleep(p.interval)
			err = op()
		}
		p.count(-1, 0)
		// There may be little of it, and the next write find none.
		time.AfterFunc(calmIntervals*p.interval, func() { p.count(0, -1) })
	}
	if err != nil {
		p.fail(err)
	}
	return nil
}

func hasNoRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func (p *patientFS) count(waiting, full int) {
	p.mu.Lock()
	before := p.troubleLocked()
	p.waiting += waiting
	p.full += full
	p.observeLocked(before)
	f := p.notified
	p.mu.Unlock()
	if waiting > 0 && f != nil {
		f(queue.ErrNoRoom)
	}
}

func (p *patientFS) observeLocked(before error) {
	if now := p.troubleLocked(); now != before { //nolint:errorlint // is it the same one?
		p.observer.Troubled(now)
	}
}

// fail does not return.
func (p *patientFS) fail(err error) {
	p.refuse(err)
	select {}
}

// refuse says that nothing can be written from now on.
func (p *patientFS) refuse(err error) {
	p.mu.Lock()
	before := p.troubleLocked()
	if p.failure == nil {
		p.failure = fmt.Errorf("%w: %w", queue.ErrNotStored, err)
	}
	p.observeLocked(before)
	failure, f := p.failure, p.notified
	p.mu.Unlock()
	if f != nil {
		f(failure)
	}
}

// sync does a sync, which is not done again when it fails.
func (p *patientFS) sync(op func() error) error {
	if err := op(); err != nil {
		p.fail(err)
	}
	return nil
}

// The operations of a file system that take room.

func (p *patientFS) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = p.write(func() error { f, err = p.FS.Create(name, category); return err })
	return p.file(f), err
}

func (p *patientFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (f vfs.File, err error) {
	err = p.write(func() error { f, err = p.FS.OpenReadWrite(name, category, opts...); return err })
	return p.file(f), err
}

func (p *patientFS) ReuseForWrite(oldName, newName string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = p.write(func() error { f, err = p.FS.ReuseForWrite(oldName, newName, category); return err })
	return p.file(f), err
}

func (p *patientFS) OpenDir(name string) (vfs.File, error) {
	f, err := p.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return p.file(f), nil
}

func (p *patientFS) Link(oldName, newName string) error {
	return p.write(func() error { return p.FS.Link(oldName, newName) })
}

func (p *patientFS) Rename(oldName, newName string) error {
	return p.write(func() error { return p.FS.Rename(oldName, newName) })
}

func (p *patientFS) MkdirAll(name string, perm os.FileMode) error {
	return p.write(func() error { return p.FS.MkdirAll(name, perm) })
}

func (p *patientFS) Unwrap() vfs.FS { return p.FS }

func (p *patientFS) file(f vfs.File) vfs.File {
	if f == nil {
		return nil
	}
	return &patientFile{File: f, fs: p}
}

type patientFile struct {
	vfs.File
	fs *patientFS
}

func (f *patientFile) Write(b []byte) (n int, err error) {
	err = f.fs.write(func() error {
		done, err := f.File.Write(b[n:])
		n += done
		return err
	})
	return n, err
}

func (f *patientFile) WriteAt(b []byte, offset int64) (n int, err error) {
	err = f.fs.write(func() error {
		done, err := f.File.WriteAt(b[n:], offset+int64(n))
		n += done
		return err
	})
	return n, err
}

// Preallocate takes no room. Pebble would have 70 MiB for each of six logs before the first of them
// is gone, most of it never used, and syncs are as fast without.
func (f *patientFile) Preallocate(int64, int64) error { return nil }

func (f *patientFile) Sync() error     { return f.fs.sync(f.File.Sync) }
func (f *patientFile) SyncData() error { return f.fs.sync(f.File.SyncData) }

func (f *patientFile) SyncTo(length int64) (full bool, err error) {
	err = f.fs.sync(func() error { full, err = f.File.SyncTo(length); return err })
	return full, err
}
