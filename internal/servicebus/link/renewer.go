// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"sync"
	"time"
)

const (
	// A lock is renewed when half of it is over, but after renewFirst at the latest the first time:
	// how long it lasts is not certain then.
	renewFirst, renewMax = 3 * time.Second, 20 * time.Second
	// renewTogether is how far ahead of its time a lock is renewed together with others.
	renewTogether = time.Second
	// RetryInterval is how long after a failure the next renewal follows, and the next attempt to open
	// a receiver that stays open.
	RetryInterval = 250 * time.Millisecond
)

// A Renewer renews the locks of messages of one entity, for as long as they are held. It needs no
// link that they came over.
type Renewer struct {
	ns     *Namespace
	entity string
	cfg    RenewerConfig
	wake   chan struct{} // one token: there is an earlier lock to renew

	mu   sync.Mutex
	held map[*ReceivedMessage]*heldLock
	span time.Duration // the shortest lock that was seen; 0: none
	next time.Time     // by our clock: when the first of them is renewed
}

// RenewerConfig configures a Renewer. Now is required.
type RenewerConfig struct {
	Now     func() time.Time // by the broker's clock, or a little less
	Renewed func(requests int)
	Failed  func(locks int, err error)
	Lost    func(locks int)
}

type heldLock struct {
	lapses, renewAt time.Time // by our clock
}

// Renewer makes a Renewer. Run starts it.
func (n *Namespace) Renewer(entity string, cfg RenewerConfig) *Renewer {
	return &Renewer{ns: n, entity: entity, cfg: cfg, wake: make(chan struct{}, 1), held: map[*ReceivedMessage]*heldLock{}}
}

// Hold renews the lock of m from now on.
func (k *Renewer) Hold(m *ReceivedMessage) {
	until := m.LockedUntil
	if m.LockToken == (Lock{}) || until.IsZero() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if span := until.Sub(m.EnqueuedTime); !m.EnqueuedTime.IsZero() && (k.span == 0 || span < k.span) {
		k.span = span
	}
	h := &heldLock{}
	k.setLocked(h, until, renewFirst)
	k.held[m] = h
	if k.next.IsZero() || h.renewAt.Before(k.next) {
		k.next = h.renewAt
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func (k *Renewer) setLocked(h *heldLock, until time.Time, most time.Duration) {
	left, now := until.Sub(k.cfg.Now()), time.Now()
	if k.span > 0 {
		left = min(left, k.span)
	}
	h.lapses, h.renewAt = now.Add(left), now.Add(min(left/2, most))
}

// Forget ends the renewal of the lock of m.
func (k *Renewer) Forget(m *ReceivedMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, m)
}

// Run renews locks until ctx ends.
func (k *Renewer) Run(ctx context.Context) {
	var p *Peeker
	defer func() {
		if p != nil {
			p.Close(ctx)
		}
	}()
	for {
		due, next := k.due(time.Now())
		var timer <-chan time.Time
		switch {
		case len(due) > 0:
			var err error
			if p, err = k.renew(ctx, p, due); err == nil {
				continue
			}
			if ctx.Err() == nil {
				k.cfg.Failed(len(due), err)
			}
			timer = time.After(RetryInterval)
		case !next.IsZero():
			timer = time.After(time.Until(next))
		}
		select {
		case <-timer:
		case <-k.wake:
		case <-ctx.Done():
			return
		}
	}
}

// due returns the messages whose locks are to be renewed now, or when the first is. It forgets
// those that have lapsed.
func (k *Renewer) due(now time.Time) (due []*ReceivedMessage, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for m, h := range k.held {
		if !h.lapses.After(now) {
			delete(k.held, m)
			continue
		}
		if next.IsZero() || h.renewAt.Before(next) {
			next = h.renewAt
		}
	}
	k.next = next
	if next.IsZero() || next.After(now) {
		return nil, next
	}
	together := now.Add(min(renewTogether, k.span/8))
	for m, h := range k.held {
		if !h.renewAt.After(together) {
			due = append(due, m)
		}
	}
	return due, next
}

// renew renews locks with p, which is opened where there is none.
func (k *Renewer) renew(ctx context.Context, p *Peeker, due []*ReceivedMessage) (_ *Peeker, err error) {
	if p == nil {
		if p, err = k.ns.Peeker(ctx, k.entity); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	locks := make([]Lock, len(due))
	for i, m := range due {
		locks[i] = m.LockToken
	}
	until, requests, err := p.RenewLocks(ctx, locks)
	k.cfg.Renewed(requests)
	if err != nil {
		return nil, err
	}
	lost := 0
	k.mu.Lock()
	for i, m := range due {
		h := k.held[m]
		switch {
		case h == nil: // settled meanwhile
		case until[i].IsZero():
			delete(k.held, m)
			lost++
		default:
			k.setLocked(h, until[i], renewMax)
		}
	}
	k.mu.Unlock()
	if lost > 0 {
		k.cfg.Lost(lost)
	}
	return p, nil
}
