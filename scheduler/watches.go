// SPDX-License-Identifier: Apache-2.0

package scheduler

// Watches reports whether this process knows of a companion that finds the message of r, which was
// found at path, a queue of that name or a subscription of entity: one that names it, or a slot
// that stands for it. Of what other processes have sent, or this one long ago, it knows nothing.
func (s *Scheduler) Watches(entity, path string, r *Reference) bool {
	if s.cfg.Index != nil {
		if indexed := r.indexed(); s.cfg.Index.Carries(entity, &indexed) {
			return true
		}
	}
	if path != entity || r.Within <= 0 || r.Stated == StatedComplete || r.Ahead > 0 {
		return false
	}
	slot := numberOf(r.Deadline)
	for _, k := range []seriesKey{{entity: entity, life: r.Within}, spanOf(entity, r.Within), {entity: entity, life: r.Within, byDefault: true}} {
		if s.slots.has(k, slot) {
			return true
		}
	}
	return false
}

// has reports whether a slot has its companion.
func (cs *slotRegistry) has(k seriesKey, slot int64) bool {
	cs.mu.RLock()
	c := cs.by[k]
	cs.mu.RUnlock()
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.slots[slot]
	return at != nil && at.durable
}
