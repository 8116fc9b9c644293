// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"testing"
	"time"
)

func TestTheStateOfASessionIsPartOfTheSize(t *testing.T) {
	sessionQueue(t, Config{Shared: NewQuota(1000)}, func(t *testing.T, q *Queue) {
		accept(t, q, "a")
		if err := q.Sessions().SetState("a", []byte("kept")); err != nil {
			t.Fatalf("SetState: %v", err)
		}
		if err := q.Sessions().SetState("a", make([]byte, 1000)); !errors.Is(err, ErrFull) {
			t.Errorf("SetState = %v, want ErrFull", err)
		}
		if got, err := q.Sessions().State("a"); err != nil || string(got) != "kept" {
			t.Errorf("SessionState = %q, %v, want kept", got, err)
		}
		if got, want := q.Counts().Size, int64(sessionStateOverhead+len("a")+len("kept")); got != want {
			t.Errorf("Size = %d, want %d", got, want)
		}
		if err := q.Sessions().SetState("a", nil); err != nil || q.Counts().Size != 0 {
			t.Errorf("clearing the state = %v, size %d, want 0", err, q.Counts().Size)
		}
	})
}

func TestAHeldStateIsSetOrLeavesNothing(t *testing.T) {
	sessionQueue(t, Config{Shared: NewQuota(2000), LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		accept(t, q, "a")
		hold := func(size int) *HeldState {
			t.Helper()
			held, err := q.Sessions().HoldState("a", make([]byte, size))
			if err != nil {
				t.Fatalf("HoldState: %v", err)
			}
			return held
		}
		want := func(what string, used, size int64, state int) {
			t.Helper()
			got, err := q.Sessions().State("a")
			if q.quota.Used() != used || q.Counts().Size != size || len(got) != state || err != nil {
				t.Errorf("%s: used %d, size %d, state of %d bytes, %v; want %d, %d, %d", what, q.quota.Used(), q.Counts().Size, len(got), err, used, size, state)
			}
		}
		const overhead = sessionStateOverhead + int64(len("a"))
		first := hold(100)
		want("held", overhead+100, 0, 0)
		if _, err := q.Sessions().HoldState("a", make([]byte, 1000)); !errors.Is(err, ErrFull) {
			t.Errorf("HoldState of too much = %v, want ErrFull", err)
		}
		first.Cancel()
		want("cancelled", 0, 0, 0)
		first = hold(100)
		if err := q.Sessions().SetState("a", make([]byte, 50)); err != nil {
			t.Fatalf("SetState: %v", err)
		}
		if err := first.Set(); err != nil || !first.Possible() {
			t.Errorf("Set: %v", err)
		}
		want("set over another", overhead+100, overhead+100, 100)
		lost := hold(200)
		time.Sleep(time.Minute + sessionGrace)
		accept(t, q, "a")
		if err := lost.Set(); !errors.Is(err, ErrSessionLockLost) || lost.Possible() {
			t.Errorf("Set under a lock that has lapsed = %v, want ErrSessionLockLost", err)
		}
		want("lost", overhead+100, overhead+100, 100)
	})
}
