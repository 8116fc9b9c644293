// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"overdue/internal/testing/testseed"
)

// TestEachMessageIsSettledExactlyOnce lets producers, consumers and the timer meet on the real
// clock: that is where races are. Consumers complete, abandon, release, defer, dead-letter, keep
// messages until their locks lapse, never take them, and come and go. Every message ends in one
// Complete that succeeded, here or in the dead-letter queue.
func TestEachMessageIsSettledExactlyOnce(t *testing.T) {
	seed := testseed.Of(t)
	s := &stress{t: t, q: New(Config{
		LockDuration:                     5 * time.Millisecond,
		MaxDeliveryCount:                 1000,
		DeadLetteringOnMessageExpiration: true,
		Expiry:                           Expiry(seed % 3),
	})}
	defer s.q.Close()
	const producers, consumers, each = 4, 6, 1500
	const n = producers * each
	s.settled = make([]atomic.Int32, n)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() { s.produce(p*each, each, rand.New(rand.NewPCG(seed, uint64(p)))) })
	}
	for c := range consumers {
		q := s.q
		if c >= consumers-2 {
			q = s.q.DeadLetterQueue()
		}
		wg.Go(func() {
			for r := rand.New(rand.NewPCG(seed, uint64(100+c))); s.left.Load() < n; {
				s.consume(q, r, n)
			}
		})
	}
	wg.Wait()
	for i := range s.settled {
		if got := s.settled[i].Load(); got != 1 {
			t.Errorf("message %d was settled %d times, want once", i, got)
		}
	}
	if got := s.q.Counts(); got != (Counts{}) {
		t.Errorf("Counts after everything was settled = %+v, want none", got)
	}
}

type stress struct {
	t       *testing.T
	q       *Queue
	settled []atomic.Int32 // by message
	left    atomic.Int64   // how many were settled
}

func (s *stress) produce(first, n int, r *rand.Rand) {
	for i := first; i < first+n; {
		var batch []Message
		for range min(1+r.IntN(20), first+n-i) {
			m := Message{Body: binary.BigEndian.AppendUint64(nil, uint64(i))}
			switch r.IntN(4) {
			case 0:
				m.TTL = time.Duration(1+r.IntN(5)) * time.Millisecond
			case 1:
				m.ScheduledEnqueueTime = time.Now().Add(time.Duration(r.IntN(5)) * time.Millisecond)
			}
			batch = append(batch, m)
			i++
		}
		if _, err := s.q.Send(batch...); err != nil {
			s.t.Errorf("Send: %v", err)
		}
	}
}

// consume is the life of one consumer.
func (s *stress) consume(q *Queue, r *rand.Rand, n int64) {
	c := q.NewConsumer(Mode(r.IntN(2)))
	defer c.Close()
	for range 1 + r.IntN(20) {
		c.AddCredit(int64(r.IntN(30) - 3))
		switch r.IntN(8) {
		case 0:
			return // with what lies in the outbox
		case 1:
			c.Drain()
		case 2:
			time.Sleep(time.Duration(r.IntN(8)) * time.Millisecond) // the outbox may lapse
		}
		ds, _, _ := c.Take(nil)
		for _, d := range ds {
			s.deal(q, c.mode, d, r)
		}
		if s.left.Load() >= n {
			return
		}
	}
}

func (s *stress) deal(q *Queue, mode Mode, d Delivery, r *rand.Rand) {
	var err error
	switch k := r.IntN(20); {
	case mode == ReceiveAndDelete:
		s.count(d)
	case k < 10:
		if err = q.Complete(d.LockToken); err == nil {
			s.count(d)
		}
	case k < 12:
		err = q.Abandon(d.LockToken, Property{"k", k})
	case k < 15:
		err = q.Release(d.LockToken)
	case k < 16:
		if err = q.DeadLetter(d.LockToken, "r", "d"); errors.Is(err, ErrDeadLetterQueue) {
			err = nil
		}
	case k < 18:
		if err = q.Defer(d.LockToken); err == nil {
			s.undefer(q, d)
		}
	case k < 19:
		_, err = q.RenewLock(d.LockToken)
	}
	if err != nil && !errors.Is(err, ErrLockLost) {
		s.t.Errorf("settling: %v", err)
	}
}

// undefer settles a deferred message, whose number nobody else knows.
func (s *stress) undefer(q *Queue, d Delivery) {
	ds, err := q.ReceiveDeferred(ReceiveAndDelete, d.SequenceNumber)
	switch {
	case err == nil:
		s.count(ds[0])
	case !d.ExpiresAt.IsZero() && errors.Is(err, ErrMessageNotFound): // it expired, and is dead-lettered
	default:
		s.t.Errorf("ReceiveDeferred: %v", err)
	}
}

func (s *stress) count(d Delivery) {
	s.settled[binary.BigEndian.Uint64(d.Body)].Add(1)
	s.left.Add(1)
}
