// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"sync"
	"time"
)

const (
	// maxSeries bounds the pairs of entity and time to live that are remembered; messages of more go by
	// references, or by slots of one batch.
	maxSeries = 1000
	// messagesPerSlot is how many messages a slot has to stand for to pay. Below, references cost
	// about as little, and the companion of one that was settled can be cancelled.
	messagesPerSlot = 10
	// spanWidth is how far apart the times to live may be that one slot stands for where each
	// message has its own. Its messages are found in as long a stretch of the queue.
	spanWidth = 5 * time.Second
	// slotClock is how well the broker's clock has to be known for slots to be of use.
	slotClock = 10 * time.Millisecond
)

// What Config.Companions may say.
const (
	companionsAuto = "auto" // "" as well: slots where they pay
	companionsEach = "each"
	companionsSlot = "slot" // wherever they are possible
)

// A slotRegistry remembers which slots have a companion, or are about to.
type slotRegistry struct {
	mu     sync.Mutex
	series map[seriesKey]*series
	pruned int64 // the second in which what is over was dropped last
}

// A seriesKey stands for the messages of one entity with a time to live.
type seriesKey struct {
	entity string
	life   time.Duration
	span   bool // all times to live from life on that are less than spanWidth longer
	// of messages that state none: life is the default of their entity as it was when they were
	// sent. Their slots say so, since the monitor cannot read it from the messages once the default
	// has changed.
	byDefault bool
}

// spanOf is the key for messages with that time to live and similar ones.
func spanOf(entity string, life time.Duration) seriesKey {
	return seriesKey{entity: entity, life: max(life.Truncate(spanWidth), time.Millisecond), span: true}
}

// companion is that of the slot with a number.
func (k seriesKey) companion(number int64) Companion {
	end := time.Unix(0, number*int64(slot)).UTC()
	c := Companion{
		Entity:     k.entity,
		Due:        slotDue(end),
		SlotEnd:    end,
		SlotLength: slot,
	}
	if k.span {
		c.Spans = []span{{k.life, k.life.Truncate(spanWidth) + spanWidth - time.Millisecond}}
	} else {
		c.Lives = []time.Duration{k.life}
	}
	if k.byDefault {
		c.Defaults = c.Lives
	}
	return c
}

// A series is the slots of one key.
type series struct {
	slots    map[int64]*registeredSlot // by their numbers
	second   int64                     // in which the last message was sent
	messages int                       // that were sent in that second
	pays     int64                     // the last second in which slots pay
}

// A registeredSlot is one whose companion is written, or being written.
type registeredSlot struct {
	registry *slotRegistry
	series   *series
	number   int64
	durable  bool
	waiting  []*ticket
}

// numberOf is the number of the slot that t falls in: its end, in slots since 1970.
func numberOf(t time.Time) int64 { return slotEnd(t).UnixNano() / int64(slot) }

// Pays reports whether slots may stand for messages with these times to live that are sent now, and
// cost less than their references would. They do if there are many with that time to live, or with
// similar ones, and the broker's clock is known well enough.
func (s *Scheduler) Pays(entity string, lives []time.Duration, now Instant) bool {
	always := s.cfg.Companions == companionsSlot
	if s.cfg.Companions == companionsEach || len(lives) == 0 || !now.Measured || !s.slots.areMany(entity, lives, now.Time, always) {
		return false
	}
	if now.Uncertainty >= slotClock/2 {
		s.keepSharp()
	}
	return now.Uncertainty <= slotClock
}

// areMany counts these messages and reports whether there are so many that slots cost less than
// references, for most of them, or always is set. For the others a slot costs no more than a
// companion of their own.
func (sr *slotRegistry) areMany(entity string, lives []time.Duration, now time.Time, always bool) bool {
	shortest := slices.Min(lives)
	if shortest < shortLife {
		return false
	}
	sr.mu.Lock()
	defer sr.mu.Unlock()
	if shortest == slices.Max(lives) && sr.countLocked(seriesKey{entity: entity, life: shortest}, len(lives), now) {
		return true
	}
	paying := 0
	for _, life := range lives {
		if sr.countLocked(spanOf(entity, life), 1, now) {
			paying++
		}
	}
	return always || 2*paying > len(lives)
}

// countLocked counts n messages and reports whether slots pay for messages with that key. They do
// if enough were sent in this second, or in one whose slots stand for messages that are sent now.
func (sr *slotRegistry) countLocked(k seriesKey, n int, now time.Time) bool {
	c := sr.seriesLocked(k, now)
	second, spread := now.Unix(), time.Second // over which the deadlines of a second are spread
	if k.span {
		spread = spanWidth
	}
	if second != c.second {
		c.second, c.messages = second, 0
	}
	if c.messages += n; c.messages >= messagesPerSlot*int(spread/slot) {
		c.pays = second + int64(spread/time.Second)
	}
	return second <= c.pays
}

// seriesLocked is the series with that key. Where there are too many, nothing remembers it.
func (sr *slotRegistry) seriesLocked(k seriesKey, now time.Time) *series {
	sr.pruneLocked(now)
	if sr.series == nil {
		sr.series = map[seriesKey]*series{}
	}
	c := sr.series[k]
	if c == nil {
		c = &series{slots: map[int64]*registeredSlot{}}
		if len(sr.series) < maxSeries {
			sr.series[k] = c
		}
	}
	return c
}

// pruneLocked drops slots once a second: those that no message has fallen in for 2 spanWidth and
// that none can fall in any more. It also drops the series with which nothing is lost. So the
// registry does not grow with the deadlines that are outstanding.
func (sr *slotRegistry) pruneLocked(now time.Time) {
	if sr.pruned == now.Unix() {
		return
	}
	sr.pruned = now.Unix()
	for k, c := range sr.series {
		over := numberOf(now.Add(k.life - 2*spanWidth))
		for n, at := range c.slots {
			if n < over && at.durable {
				delete(c.slots, n)
			}
		}
		if len(c.slots) == 0 && max(c.second, c.pays) < sr.pruned {
			delete(sr.series, k)
		}
	}
}

// enterSlots finishes t when every slot that its messages can fall in has a companion.
func (s *Scheduler) enterSlots(t *ticket) {
	refs := t.c.References
	mixed := slices.ContainsFunc(refs, func(r Reference) bool { return r.Within != refs[0].Within })
	t.open.Add(1) // which keeps it open until all are asked for
	for i := range refs {
		if i > 0 && refs[i].sameSlots(&refs[i-1]) {
			continue // as mostly in a batch
		}
		key, missing := s.slots.await(t, &refs[i], mixed)
		for _, at := range missing {
			s.Start(key.companion(at.number), at)
		}
	}
	t.end(nil)
}

// sameSlots reports whether the messages of two references fall in the same slots.
func (r *Reference) sameSlots(o *Reference) bool {
	return r.Within == o.Within && r.Stated == o.Stated && r.From.Equal(o.From) && r.Until.Equal(o.Until)
}

// await has t wait for the slots of r, and returns those that are not asked for yet.
func (sr *slotRegistry) await(t *ticket, r *Reference, mixed bool) (key seriesKey, missing []*registeredSlot) {
	sr.mu.Lock()
	defer sr.mu.Unlock()
	key = sr.keyLocked(t.c.Entity, r, mixed)
	c := sr.seriesLocked(key, r.From)
	for n := numberOf(r.From.Truncate(time.Millisecond).Add(r.Within)); n <= numberOf(r.Until.Add(r.Within)); n++ {
		at := c.slots[n]
		if at == nil {
			at = &registeredSlot{
				registry: sr,
				series:   c,
				number:   n,
			}
			c.slots[n] = at
			missing = append(missing, at)
		}
		if !at.durable {
			t.open.Add(1)
			at.waiting = append(at.waiting, t)
		}
	}
	return key, missing
}

// keyLocked is the series for r: of its time to live, or of similar ones where those are sent
// together or have to come together to pay.
func (sr *slotRegistry) keyLocked(entity string, r *Reference, mixed bool) seriesKey {
	exact, span := seriesKey{entity: entity, life: r.Within}, spanOf(entity, r.Within)
	pays := func(k seriesKey) bool {
		c := sr.series[k]
		return c != nil && r.From.Unix() <= c.pays
	}
	switch {
	case r.Stated == "default":
		exact.byDefault = true
	case mixed, pays(span) && !pays(exact):
		return span
	}
	return exact
}

// Scheduled ends the waits for the slot. One that has failed is asked for again by the next
// message.
func (at *registeredSlot) Scheduled(err error) {
	at.registry.mu.Lock()
	waiting := at.waiting
	at.waiting, at.durable = nil, err == nil
	if err != nil {
		delete(at.series.slots, at.number)
	}
	at.registry.mu.Unlock()
	for _, t := range waiting {
		t.end(err)
	}
}

// hasSlotOf reports whether the slot of r has its companion.
func (sr *slotRegistry) hasSlotOf(entity string, r *Reference) bool {
	sr.mu.Lock()
	defer sr.mu.Unlock()
	for _, k := range []seriesKey{{entity: entity, life: r.Within}, spanOf(entity, r.Within), {entity: entity, life: r.Within, byDefault: true}} {
		if c := sr.series[k]; c != nil {
			if at := c.slots[numberOf(r.Deadline)]; at != nil && at.durable {
				return true
			}
		}
	}
	return false
}
