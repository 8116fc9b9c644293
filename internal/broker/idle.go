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
	entity *Entity
	since  time.Time // by the clock of the namespace: in this process, it was not used before
	mu     sync.Mutex
	timer  *time.Timer
}

// arm looks again after d; 0 ends it.
func (t *idleTimer) arm(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	if d > 0 {
		t.timer = time.AfterFunc(d, t.check)
	}
}

func (t *idleTimer) stop() { t.arm(0) }

// watch begins, or begins again after the settings have changed.
func (t *idleTimer) watch() {
	after := t.entity.common().autoDeleteOnIdle
	if after <= 0 {
		t.stop()
		return
	}
	t.arm(t.remaining(after))
}

// remaining is how long the entity has to stay unused until it is deleted; at
// most the whole of after, however the clock is set.
func (t *idleTimer) remaining(after time.Duration) time.Duration {
	e := t.entity
	last := time.Unix(0, max(e.accessed.Load(), e.updated.Load()))
	for _, later := range [...]time.Time{e.queue.LastActivation(), t.since} {
		if later.After(last) {
			last = later
		}
	}
	return min(max(after-e.ns.Now().Sub(last), 0), after)
}

// check deletes the entity if its time has come. A timer is a wake-up, not the
// truth.
func (t *idleTimer) check() {
	e := t.entity
	after := e.common().autoDeleteOnIdle
	if after <= 0 {
		return
	}
	if e.queue.Counts().Scheduled > 0 || t.inUse() {
		e.touch()
	}
	if d := t.remaining(after); d > 0 {
		t.arm(d)
		return
	}
	e.ns.entities.remove(e)
}

// inUse: somebody has a link to the entity, or to a subscription of it. Forwarding is such
// a receiver.
func (t *idleTimer) inUse() bool {
	return slices.ContainsFunc(append([]*Entity{t.entity}, t.entity.subscriptions()...), func(e *Entity) bool {
		return e.links.len() > 0 || e.common().forwardTo != ""
	})
}
