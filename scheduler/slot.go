// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"sync"
	"time"
)

const (
	// slotsKept is how long after its window a slot is remembered, by when no send asks for it any
	// more. What is remembered does not grow with the deadlines that are outstanding.
	slotsKept = 10 * time.Second
	// mostSeries bounds the pairs of entity and time to live; messages of more go by references.
	mostSeries = 1000
	// messagesPerSlot is how many messages a slot has to stand for to pay. Below, references cost
	// about as little, and the companion of one that was settled can be cancelled.
	messagesPerSlot = 10
	// spanWidth is how far apart the times to live may be that one slot stands for where each
	// message has its own. Its messages are found in as long a stretch of the queue.
	spanWidth = 5 * time.Second
	// slotClock is how well the broker's clock has to be known for slots to be of use.
	slotClock = 10 * time.Millisecond
	// slotWindow is how long after the send the broker's stamp is provided for. A send that takes
	// longer covers another slot before it is acknowledged.
	slotWindow = 40 * time.Millisecond
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

// companion is that of a slot.
func (k seriesKey) companion(end time.Time) Companion {
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

// A series is the slots of one entity and time to live.
type series struct {
	slots map[int64]*registeredSlot // by their ends, in slots since 1970
	// The rate: messages in the second that runs, and in the one before.
	second         int64
	now, yesterday int64
	paid           int64 // the last second in which slots did pay
}

// A registeredSlot is one whose companion is written, or being written.
type registeredSlot struct {
	registry *slotRegistry
	series   *series
	key      seriesKey
	number   int64
	durable  bool
	waiting  []*ticket
}

// Pays reports whether slots may stand for messages with these times to live that are sent now, and
// do so for less than their references would cost: there are many with that time to live, or with
// similar ones, and the broker's clock is known well enough.
func (s *Scheduler) Pays(entity string, lives []time.Duration, now Instant) bool {
	if s.cfg.Companions == companionsEach || len(lives) == 0 || !now.Measured || !s.areMany(entity, lives, now.Time) {
		return false
	}
	if now.Uncertainty >= slotClock/2 && s.clock.wantsRefresh() {
		s.wantMeasurement()
	}
	return now.Uncertainty <= slotClock
}

// areMany counts these messages and reports whether there are so many that slots cost less than
// references, for most of them: for the others a slot costs no more than a companion of their own.
func (s *Scheduler) areMany(entity string, lives []time.Duration, now time.Time) bool {
	if slices.Min(lives) < shortLife {
		return false
	}
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	same := slices.Min(lives) == slices.Max(lives)
	if same && s.payLocked(seriesKey{entity: entity, life: lives[0]}, int64(len(lives)), now) {
		return true
	}
	paying := 0
	for _, life := range lives {
		if s.payLocked(spanOf(entity, life), 1, now) {
			paying++
		}
	}
	return 2*paying > len(lives)
}

// payLocked counts n messages and reports whether slots pay for what has that key.
func (s *Scheduler) payLocked(k seriesKey, n int64, now time.Time) bool {
	c := s.slots.seriesLocked(k, now)
	return c != nil && (c.counts(k, n, now) || s.cfg.Companions == companionsSlot)
}

// seriesLocked is the series with that key, nil when there are too many.
func (sr *slotRegistry) seriesLocked(k seriesKey, now time.Time) *series {
	c := sr.series[k]
	if c != nil {
		return c
	}
	sr.pruneLocked(now)
	if len(sr.series) >= mostSeries {
		return nil
	}
	if sr.series == nil {
		sr.series = map[seriesKey]*series{}
	}
	c = &series{slots: map[int64]*registeredSlot{}}
	sr.series[k] = c
	return c
}

// pruneLocked drops the slots that no message can fall in any more, once a second, and the series
// with which nothing is lost.
func (sr *slotRegistry) pruneLocked(now time.Time) {
	if sr.pruned == now.Unix() {
		return
	}
	sr.pruned = now.Unix()
	for k, c := range sr.series {
		over := numberOf(now.Add(k.life - slotsKept))
		for n, at := range c.slots {
			if n < over && at.durable {
				delete(c.slots, n)
			}
		}
		if len(c.slots) == 0 && !isRecent(c.second, now) {
			delete(sr.series, k)
		}
	}
}

// counts counts n messages, if any, and reports whether slots pay at the rate at which they come.
func (c *series) counts(k seriesKey, n int64, now time.Time) bool {
	switch second := now.Unix(); {
	case n == 0:
	case second == c.second+1:
		c.second, c.yesterday, c.now = second, c.now, 0
	case second != c.second:
		c.second, c.yesterday, c.now = second, 0, 0
	}
	c.now += n
	spread := time.Second
	if k.span { // those that come in one go, and no others for as long, are enough too
		spread = spanWidth
	}
	if max(c.now, c.yesterday) >= messagesPerSlot*int64(spread/slot) {
		c.paid = c.second
		return true
	}
	return k.span && c.paid > 0 && isRecent(c.paid, now)
}

// isRecent reports whether a second is so near that there may be slots ahead of it that stand for
// similar times to live.
func isRecent(second int64, now time.Time) bool {
	return now.Unix()-second <= int64(spanWidth/time.Second)+1
}

// numberOf is the number of the slot that t falls in.
func numberOf(t time.Time) int64 { return slotEnd(t).UnixNano() / int64(slot) }

// enterSlots finishes t when every slot that its messages can fall in has a companion.
func (s *Scheduler) enterSlots(t *ticket) {
	var missing []*registeredSlot
	refs := t.c.References
	alone := !slices.ContainsFunc(refs, func(r Reference) bool { return r.Within != refs[0].Within })
	s.slots.mu.Lock()
	t.slots = 1 // which keeps it open until all are asked for
	for i := range refs {
		if i > 0 && refs[i].sameSlots(&refs[i-1]) {
			continue // as mostly in a batch
		}
		missing = append(missing, s.awaitLocked(t, &refs[i], alone)...)
	}
	s.slots.mu.Unlock()
	for _, at := range missing {
		s.Start(at.key.companion(time.Unix(0, at.number*int64(slot)).UTC()), at)
	}
	s.slots.release([]*ticket{t}, nil)
}

// sameSlots reports whether the messages of two references fall in the same slots.
func (r *Reference) sameSlots(o *Reference) bool {
	return r.Within == o.Within && r.Stated == o.Stated && r.From.Equal(o.From) && r.Until.Equal(o.Until)
}

// awaitLocked has t wait for the slots of r, and returns those that are not asked for yet.
func (s *Scheduler) awaitLocked(t *ticket, r *Reference, alone bool) (missing []*registeredSlot) {
	k := s.keyLocked(t.c.Entity, r, alone)
	s.slots.pruneLocked(r.From)
	c := s.slots.seriesLocked(k, r.From)
	if c == nil { // there was one when Pays was asked
		c = &series{slots: map[int64]*registeredSlot{}}
	}
	for n := numberOf(r.From.Truncate(stampGrain).Add(r.Within)); n <= numberOf(r.Until.Add(r.Within)); n++ {
		at := c.slots[n]
		if at == nil {
			at = &registeredSlot{
				registry: &s.slots,
				series:   c,
				key:      k,
				number:   n,
			}
			c.slots[n] = at
			missing = append(missing, at)
		}
		if !at.durable {
			t.slots++
			at.waiting = append(at.waiting, t)
		}
	}
	return missing
}

// keyLocked is the series for r, whose time to live all have that are sent with it if alone says
// so: of that time to live, or of similar ones where those have to come together to pay.
func (s *Scheduler) keyLocked(entity string, r *Reference, alone bool) seriesKey {
	exact, span := seriesKey{entity: entity, life: r.Within}, spanOf(entity, r.Within)
	switch {
	case r.Stated == "default":
		exact.byDefault = true
		return exact
	case alone && (s.payLocked(exact, 0, r.From) || !s.payLocked(span, 0, r.From)):
		return exact
	}
	return span
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
	at.registry.release(waiting, err)
}

// release has tickets wait for one slot less.
func (sr *slotRegistry) release(tickets []*ticket, err error) {
	sr.mu.Lock()
	done := tickets[:0]
	for _, t := range tickets {
		if t.err == nil {
			t.err = err
		}
		if t.slots--; t.slots == 0 {
			done = append(done, t)
		}
	}
	sr.mu.Unlock()
	for _, t := range done {
		t.finish()
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
