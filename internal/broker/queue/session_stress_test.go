// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"overdue/internal/testing/testseed"
)

// TestMessagesOfASessionAreCompletedOnceAndInOrder lets producers, holders of sessions and the
// timer meet on the real clock. Holders wait for a session, by name or for the next, give up
// waiting, complete and abandon. They also lose their lock or give it up while they still receive.
// A holder that does anything but complete gives the session up. Then the messages of a session are
// completed in the order in which they were sent.
func TestMessagesOfASessionAreCompletedOnceAndInOrder(t *testing.T) {
	seed := testseed.Of(t)
	const sessions, each, holders = 20, 200, 8
	q := New(Config{RequiresSession: true, LockDuration: 5 * time.Millisecond, MaxDeliveryCount: 1 << 30, Expiry: Expiry(seed % 3)})
	defer q.Close()
	var wg sync.WaitGroup
	for id := range sessions {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(id)))
			for i := 0; i < each; {
				var batch []Message
				for range min(1+r.IntN(5), each-i) {
					m := inSession(fmt.Sprint(id), "")
					m.Body = binary.BigEndian.AppendUint32(nil, uint32(i))
					batch = append(batch, m)
					i++
				}
				if _, err := q.Send(batch...); err != nil {
					t.Errorf("Send: %v", err)
				}
			}
		})
	}
	s := &sessionStress{t: t, q: q, done: make(chan struct{})}
	s.left.Store(sessions * each)
	for h := range holders {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(1000+h)))
			for s.left.Load() > 0 {
				if held := s.accept(r, sessions); held != nil {
					s.hold(held, r)
				}
			}
		})
	}
	wg.Wait()
	if got := q.Counts(); got != (Counts{}) {
		t.Errorf("Counts after everything was completed = %+v, want none", got)
	}
	for id := range sessions {
		if got := s.next[id].Load(); got != each {
			t.Errorf("session %d: %d messages were completed, want %d", id, got, each)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.sessions.byID); n != 0 {
		t.Errorf("%d sessions are left, want none", n)
	}
}

type sessionStress struct {
	t    *testing.T
	q    *Queue
	done chan struct{} // closed when everything is completed
	left atomic.Int64
	next [20]atomic.Uint32 // message of a session to be completed
}

func (s *sessionStress) accept(r *rand.Rand, sessions int) *Session {
	var h *Session
	var err error
	switch r.IntN(4) {
	case 0:
		h, err = s.q.Sessions().Accept(fmt.Sprint(r.IntN(sessions)))
	case 1:
		cancel := make(chan struct{})
		timer := time.AfterFunc(time.Duration(r.IntN(1000))*time.Microsecond, func() { close(cancel) })
		defer timer.Stop()
		h, err = s.q.Sessions().Next(cancel)
	default:
		h, err = s.q.Sessions().Next(s.done)
	}
	if err != nil && !errors.Is(err, ErrSessionLocked) && !errors.Is(err, ErrCanceled) {
		s.t.Errorf("accepting a session: %v", err)
	}
	return h
}

func (s *sessionStress) hold(h *Session, r *rand.Rand) {
	defer h.Close()
	c := h.NewConsumer(PeekLock)
	c.AddCredit(int64(1 + r.IntN(10)))
	ds, _, _ := c.Take(nil)
	for _, d := range ds {
		var err error
		switch r.IntN(20) {
		case 0:
			return
		case 1:
			time.Sleep(6 * time.Millisecond) // the lock lapses
			return
		case 2:
			if err = s.q.Abandon(d.LockToken); err != nil && !errors.Is(err, ErrLockLost) {
				s.t.Errorf("Abandon: %v", err)
			}
			return
		case 3:
			if _, err = h.Renew(); err != nil && !errors.Is(err, ErrSessionLockLost) {
				s.t.Errorf("Renew: %v", err)
			}
		}
		var id int
		_, _ = fmt.Sscan(h.ID(), &id)
		if !s.isNext(h, id, binary.BigEndian.Uint32(d.Body)) {
			return
		}
		if err = s.q.Complete(d.LockToken); err != nil {
			if !errors.Is(err, ErrLockLost) {
				s.t.Errorf("Complete: %v", err)
			}
			return
		}
		s.next[id].Add(1)
		if s.left.Add(-1) == 0 {
			close(s.done)
		}
	}
}

// isNext waits until all messages before n have been completed: the holder before may have yet to
// say so. It reports false when the lock is lost.
func (s *sessionStress) isNext(h *Session, id int, n uint32) bool {
	for {
		done := s.next[id].Load()
		if h.isLost() {
			return false
		}
		if done > n {
			s.t.Errorf("session %d: received message %d when %d were completed", id, n, done)
			return false
		}
		if done == n {
			return true
		}
		runtime.Gosched()
	}
}
