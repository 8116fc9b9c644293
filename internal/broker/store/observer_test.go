// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker/queue"
)

type recorder struct {
	changes  chan int
	troubles chan error
}

func (r *recorder) Committed(changes int, _ time.Duration) { r.changes <- changes }
func (r *recorder) Troubled(err error)                     { r.troubles <- err }

func openObserved(t *testing.T, d *disk) (*Store, *recorder) {
	t.Helper()
	r := &recorder{make(chan int, 10), make(chan error, 10)}
	s, err := openIn(directory, d, r, testInterval)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

func TestObserverHearsOfCommitsAndOfTheBeginAndEndOfTrouble(t *testing.T) {
	d := newDisk()
	s, r := openObserved(t, d)
	s.Queue(1).Append(added(1, whole()))
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := <-r.changes; n != 3 {
		t.Errorf("a commit has %d changes, want the message, its content and the latest number", n)
	}
	d.set(func() error { return syscall.ENOSPC }, nil)
	s.Queue(1).Append(added(2, whole()))
	if err := <-r.troubles; !errors.Is(err, queue.ErrNoRoom) {
		t.Errorf("trouble = %v, want %v", err, queue.ErrNoRoom)
	}
	d.set(nil, nil)
	if err := <-r.troubles; err != nil {
		t.Errorf("trouble = %v, want its end", err)
	}
	if n := <-r.changes; n != 3 {
		t.Errorf("the commit that waited has %d changes, want 3", n)
	}
	if n, err := s.Bytes(); n == 0 || err != nil {
		t.Errorf("the directory takes %d bytes (%v), want some", n, err)
	}
	d.set(nil, func() error { return syscall.EIO })
	s.Queue(1).Append(added(3, whole()))
	if err := <-r.troubles; !errors.Is(err, queue.ErrNotStored) {
		t.Errorf("trouble = %v, want %v", err, queue.ErrNotStored)
	}
}

// Other processes free a little room on a full disk, and fill it. A write that finds such room does
// not end the trouble.
func TestTroubleLastsAsLongAsWritesWaitForRoomNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{troubles: make(chan error, 100)}
		p := newPatientFS(nil, r, retryInterval)
		for range 20 {
			full := true
			err := p.write(func() error {
				if full {
					full = false
					return syscall.ENOSPC
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(retryInterval) // a sync
		}
		if err := <-r.troubles; !errors.Is(err, queue.ErrNoRoom) || len(r.troubles) > 0 {
			t.Errorf("trouble = %v, and %d changes after it, want %v once", err, len(r.troubles), queue.ErrNoRoom)
		}
		time.Sleep(10 * retryInterval)
		if len(r.troubles) != 1 || <-r.troubles != nil || p.trouble() != nil {
			t.Error("the trouble has not ended although no write waits any more")
		}
	})
}

// A start on a full disk waits, and says why.
func TestObserverHearsThatOpenWaitsForRoom(t *testing.T) {
	d := newDisk()
	if err := openOn(t, d).Close(); err != nil {
		t.Fatal(err)
	}
	d.set(func() error { return syscall.ENOSPC }, nil)
	r := &recorder{make(chan int, 10), make(chan error, 10)}
	opened := make(chan error, 1)
	go func() {
		s, err := openIn(directory, d, r, testInterval)
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	if err := <-r.troubles; !errors.Is(err, queue.ErrNoRoom) {
		t.Errorf("trouble = %v, want %v", err, queue.ErrNoRoom)
	}
	d.set(nil, nil)
	if err := <-opened; err != nil {
		t.Errorf("open when there is room = %v", err)
	}
}
