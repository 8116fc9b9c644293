// SPDX-License-Identifier: Apache-2.0

package store

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A disk is a file system in memory that loses power at a byte, and whose writes and syncs fail or
// wait when a test says so. After a loss of power, each block that was not synced is there or not.
type disk struct {
	vfs.FS
	mem *vfs.MemFS

	mu     sync.Mutex
	budget int          // bytes until power is lost; below zero: never
	lose   func()       // called then
	onData func() error // before each write; nil: writes succeed
	onSync func() error // before each sync; nil: syncs succeed
	onRead func() error // before each read of a file that was opened for that; nil: reads succeed
}

func newDisk() *disk {
	mem := vfs.NewCrashableMem()
	return &disk{FS: mem, mem: mem, budget: -1}
}

// crashed is the disk after a loss of power now.
func (d *disk) crashed(r *rand.Rand, unsyncedPercent int) *disk {
	after := d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: r})
	return &disk{FS: after, mem: after, budget: -1}
}

func (d *disk) set(data, sync func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onData, d.onSync = data, sync
}

// use takes n bytes of the budget and returns how many of them come before the loss of power, n
// when it is not now.
func (d *disk) use(n int) (before int, err error) {
	d.mu.Lock()
	check := d.onData
	d.mu.Unlock()
	if check != nil {
		if err = check(); err != nil {
			return 0, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	budget := d.budget
	if budget >= 0 {
		d.budget = max(budget-n, -1)
	}
	if budget >= 0 && budget < n {
		return budget, nil
	}
	return n, nil
}

// fill makes the disk full at random, for a few writes, until the returned function is called.
func (d *disk) fill(r *rand.Rand) (empty func()) {
	var mu sync.Mutex
	left := 0
	d.set(func() error {
		mu.Lock()
		defer mu.Unlock()
		if left == 0 && r.IntN(60) == 0 {
			left = 1 + r.IntN(3)
		}
		if left == 0 {
			return nil
		}
		left--
		return syscall.ENOSPC
	}, nil)
	return func() { d.set(nil, nil) }
}

func (d *disk) sync() error {
	d.mu.Lock()
	check := d.onSync
	d.mu.Unlock()
	if check == nil {
		return nil
	}
	return check()
}

func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	return d.file(f), err
}

func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, category, opts...)
	return d.file(f), err
}

func (d *disk) ReuseForWrite(oldName, newName string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldName, newName, category)
	return d.file(f), err
}

func (d *disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.Open(name, opts...)
	return d.file(f), err
}

func (d *disk) Unwrap() vfs.FS { return d.FS }

func (d *disk) file(f vfs.File) vfs.File {
	if f == nil {
		return nil
	}
	return &diskFile{f, d}
}

type diskFile struct {
	vfs.File
	d *disk
}

func (f *diskFile) Write(b []byte) (int, error) {
	before, err := f.d.use(len(b))
	switch {
	case err != nil:
		n, _ := f.File.Write(b[:len(b)/2]) // the rest has no room
		return n, err
	case before == len(b):
		return f.File.Write(b)
	}
	n, err := f.File.Write(b[:before])
	f.d.lose()
	if err != nil {
		return n, err
	}
	rest, err := f.File.Write(b[before:])
	return n + rest, err
}

func (f *diskFile) ReadAt(b []byte, offset int64) (int, error) {
	f.d.mu.Lock()
	check := f.d.onRead
	f.d.mu.Unlock()
	if check != nil {
		if err := check(); err != nil {
			return 0, err
		}
	}
	return f.File.ReadAt(b, offset)
}

func (f *diskFile) Sync() error {
	if err := f.d.sync(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *diskFile) SyncData() error {
	if err := f.d.sync(); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *diskFile) SyncTo(n int64) (bool, error) {
	if err := f.d.sync(); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}

const (
	directory    = "data/overdue"
	testInterval = time.Millisecond // see retryInterval
)

// openOn opens the directory on d.
func openOn(t testing.TB, d *disk) *Store {
	t.Helper()
	s, err := open(directory, d, testInterval)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	return s
}

func open(dir string, fs vfs.FS, retryInterval time.Duration) (*Store, error) {
	s, err := openIn(dir, fs, nobody{}, retryInterval)
	return s, ofDirectory(dir, err)
}

// Wait is After for somebody who can wait.
func (c *committer) Wait() error {
	done := make(chan error, 1)
	c.After(func(err error) { done <- err })
	return <-done
}
