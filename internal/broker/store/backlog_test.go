// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"syscall"
	"testing"

	"overdue/internal/broker/queue"
)

func TestBacklogOfAFullDiskHasABound(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	fill := func() {
		m := whole()
		m.Body = make([]byte, 1<<20)
		for record := range int64(maxBacklogBytes >> 20) {
			s.Queue(1).Append(added(record+1, m))
		}
	}
	if fill(); s.Backlog() != nil {
		t.Error("much waits for a disk that is slow, and that is trouble")
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	d.set(func() error { return syscall.ENOSPC }, nil)
	s.Queue(1).Append(added(100, whole()))
	if err := s.Wait(); !errors.Is(err, queue.ErrNoRoom) {
		t.Fatal(err)
	}
	if err := s.Backlog(); err != nil {
		t.Errorf("Backlog of one change = %v, want none", err)
	}
	if fill(); !errors.Is(s.Backlog(), queue.ErrNoRoom) {
		t.Errorf("Backlog of %d bytes = %v, want %v", maxBacklogBytes, s.Backlog(), queue.ErrNoRoom)
	}
	d.set(nil, nil)
	awaitRoom(s)
	if err := errors.Join(s.Wait(), s.Backlog(), s.Close()); err != nil {
		t.Errorf("when there is room: %v", err)
	}
}
