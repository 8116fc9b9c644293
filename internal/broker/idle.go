// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"
	"sync"
	"time"
)

// An idleTimer deletes an entity that has not been used for as long as its
// AutoDeleteOnIdle says. In use is what holds links, scheduled messages, forwards, or
// was sent to, received from or peeked at. Source: message-expiration and auto-forwarding
// in the documentation of Service Bus.
type idleTimer struct {
	mu    sync.Mutex
	timer *time.Timer
}

// arm looks again after d; 0 ends it.
func (t *idleTimer) arm(d time.Duration, check func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	if d > 0 {
		t.timer = time.AfterFunc(d, check)
	}
}

func (t *idleTimer) stop() { t.arm(0, nil) }

// watchIdle begins to watch, or begins again after the settings have changed.
func (e *Entity) watchIdle() {
	after := e.common().autoDeleteOnIdle
	if after <= 0 {
		e.idle.stop()
		return
	}
	e.idle.arm(e.idleFor(after), e.checkIdle)
}

// idleFor is how long the entity has to stay unused until it is deleted; at
// most the whole of after, however the clock is set.
func (e *Entity) idleFor(after time.Duration) time.Duration {
	last := time.Unix(0, max(e.accessed.Load(), e.updated.Load()))
	if at := e.queue.LastActivation(); at.After(last) {
		last = at
	}
	left := after - e.ns.Now().Sub(last)
	return min(max(left, 0), after)
}

// checkIdle deletes the entity if its time has come. A timer is a wake-up, not
// the truth.
func (e *Entity) checkIdle() {
	after := e.common().autoDeleteOnIdle
	if after <= 0 {
		return
	}
	if e.queue.Counts().Scheduled > 0 || e.inUse() {
		e.touch()
	}
	if left := e.idleFor(after); left > 0 {
		e.idle.arm(left, e.checkIdle)
		return
	}
	e.ns.entities.remove(e)
}

// inUse: somebody has a link to the entity, or to a subscription of it. Forwarding is such
// a receiver.
func (e *Entity) inUse() bool {
	return slices.ContainsFunc(append([]*Entity{e}, e.subscriptions()...), func(x *Entity) bool {
		return x.links.len() > 0 || x.common().forwardTo != ""
	})
}
