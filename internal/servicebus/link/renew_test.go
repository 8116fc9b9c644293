// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
)

// take receives n messages, and returns them with their locks.
func (s *scene) take(n int) (*link.Receiver, []*link.ReceivedMessage, []link.Lock) {
	s.Helper()
	r := s.receiver("orders")
	if err := r.Grant(s.Context(), uint32(n)); err != nil {
		s.Fatal(err)
	}
	var ms []*link.ReceivedMessage
	var locks []link.Lock
	for range n {
		m, err := r.Receive(s.Context(), time.Second)
		if err != nil || m == nil {
			s.Fatalf("receive: %v, %v", m, err)
		}
		if m.LockToken == (link.Lock{}) {
			s.Fatal("a message came without a lock token")
		}
		ms, locks = append(ms, m), append(locks, m.LockToken)
	}
	return r, ms, locks
}

func shortLock(c *broker.Config) { c.Queues[0].LockDuration = 10 * time.Second }

func TestRenewedLocksLastForAnotherLockDuration(t *testing.T) {
	play(t, func(s *scene) {
		const n = 250 // several requests
		s.send(n, time.Hour)
		r, ms, locks := s.take(n)
		p := s.peeker("orders")
		for range 5 {
			time.Sleep(6 * time.Second)
			until, requests, err := p.RenewLocks(s.Context(), locks)
			if err != nil || requests != 3 {
				s.Fatalf("RenewLocks: %d requests, %v; want 3", requests, err)
			}
			for i, at := range until {
				if want := time.Now().Add(10 * time.Second); at.Sub(want).Abs() > time.Second {
					s.Fatalf("lock %d lasts until %v, want %v", i, at, want)
				}
			}
		}
		for _, m := range ms {
			if err := r.Complete(s.Context(), m); err != nil {
				s.Fatalf("Complete under a renewed lock: %v", err)
			}
		}
	}, shortLock)
}

func TestALockThatIsNoMoreKeepsNoOtherFromBeingRenewed(t *testing.T) {
	play(t, func(s *scene) {
		const n = 5
		s.send(n, time.Hour)
		r, ms, locks := s.take(n)
		if err := r.Complete(s.Context(), ms[2]); err != nil {
			s.Fatal(err)
		}
		p := s.peeker("orders")
		until, requests, err := p.RenewLocks(s.Context(), locks)
		if err != nil || requests != 1+n {
			s.Fatalf("RenewLocks: %d requests, %v; want one, and one for each lock", requests, err)
		}
		for i, at := range until {
			if at.IsZero() != (i == 2) {
				s.Errorf("lock %d lasts until %v", i, at)
			}
		}
		if _, _, err := p.RenewLocks(s.Context(), locks[:1]); err != nil {
			s.Errorf("the peeker is of no use any more: %v", err)
		}
	}, shortLock)
}
