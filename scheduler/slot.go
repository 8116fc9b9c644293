// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"sync"
	"time"
)

const (
	// slotsKept is how long after its window a slot is remembered: no send that is still under way
	// can fall in it later. So what is remembered does not grow with the deadlines that are
	// outstanding.
	slotsKept = time.Minute
	// mostSlots is how many slots of one time to live are remembered before those that are over are
	// dropped.
	mostSlots = 8192
	// mostSeries bounds the pairs of entity and time to live; messages of more go by references.
	mostSeries = 1000
	// paysFrom is the rate, in messages per second of one entity and time to live, from which a slot
	// stands for ten messages or more. Below, references cost about as little, and the companion of
	// one that was settled can be cancelled.
	paysFrom = 10 * int64(time.Second/slot)
	// spanWidth is how far apart the times to live may be that one slot stands for where each
	// message has its own. Its messages are found in as long a stretch of the queue.
	spanWidth = 5 * time.Second
	// spanPaysFrom is the same rate for a span: even those that come in one go, and no others for as
	// long as the span is wide, are ten to a slot.
	spanPaysFrom = 10 * int64(spanWidth/slot)
	// spanStays is for how many seconds slots are taken for such messages after the last in which
	// that paid: for so long there may be slots ahead that stand for them already.
	spanStays = int64(spanWidth/time.Second) + 1
	// SlotClock is how well the broker's clock has to be known for slots to be of use.
	slotClock = 10 * time.Millisecond
	// slotWindow is how long after the send the broker's stamp is provided for. A send that takes
	// longer covers another slot before it is acknowledged.
	slotWindow = 40 * time.Millisecond
	// stampUnit is what the broker cuts its stamps to. A deadline by the stamp is earlier than one by
	// the instant itself, by less than that, and may lie in the slot before.
	stampUnit = time.Millisecond
)

// What Config.Companions may say.
const (
	companionsAuto = "auto" // "" as well: slots where they pay
	companionsEach = "each"
	companionsSlot = "slot" // wherever they are possible
)

// A slotRegistry remembers which slots have a companion.
type slotRegistry struct {
	mu sync.RWMutex
	by map[seriesKey]*series
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
	c := Companion{Entity: k.entity, Due: slotDue(end), SlotEnd: end, SlotLength: slot}
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
	key seriesKey

	mu    sync.Mutex
	slots map[int64]*registeredSlot // by their ends, in slots since 1970
	// The rate: messages in the second that runs, and in the one before.
	second         int64
	now, yesterday int64
	paid           int64 // the last second in which slots did pay
}

// A registeredSlot is one whose companion is written, or being written.
type registeredSlot struct {
	durable bool
	waiting []*slotWait
}

// A slotWait is a ticket that waits for slots.
type slotWait struct {
	t    *ticket
	mu   sync.Mutex
	left int
	err  error
}

// done ends the wait for one slot.
func (w *slotWait) done(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.left--
	last := w.left == 0
	w.mu.Unlock()
	if last {
		w.t.err = w.err
		w.t.finish()
	}
}

// Pays reports whether slots may stand for messages with these times to live that are sent now, and
// do so for less than their references would cost: there are many with that time to live, or with
// similar ones, and the broker's clock is known well enough.
func (s *Scheduler) Pays(entity string, lives []time.Duration, now Instant) bool {
	if s.cfg.Companions == companionsEach || len(lives) == 0 || !now.Measured || !s.many(entity, lives, now) {
		return false
	}
	if now.Uncertainty >= slotClock/2 && s.clock.wantsRefresh() {
		s.wantMeasurement()
	}
	return now.Uncertainty <= slotClock
}

// many counts these messages and reports whether there are so many that slots cost less than
// references, for most of them: for the others a slot costs no more than a companion of their own.
func (s *Scheduler) many(entity string, lives []time.Duration, now Instant) bool {
	same := true
	for _, life := range lives {
		if life < shortLife {
			return false
		}
		same = same && life == lives[0]
	}
	if same && s.pay(seriesKey{entity: entity, life: lives[0]}, len(lives), now.Time) {
		return true
	}
	paying := 0
	for _, life := range lives {
		if s.pay(spanOf(entity, life), 1, now.Time) {
			paying++
		}
	}
	return 2*paying > len(lives)
}

// pay counts n messages and reports whether slots pay for what has that key.
func (s *Scheduler) pay(k seriesKey, n int, now time.Time) bool {
	c := s.slots.of(k, now)
	return c != nil && (c.counts(int64(n), now) || s.cfg.Companions == companionsSlot)
}

// standing is the series for r, whose time to live all have that are sent with it if alone says so:
// of that time to live, or of similar ones where those have to come together to pay.
func (s *Scheduler) standing(entity string, r *Reference, alone bool) *series {
	exact, span := seriesKey{entity: entity, life: r.Within}, spanOf(entity, r.Within)
	k := span
	if alone && (s.pay(exact, 0, r.From) || !s.pay(span, 0, r.From)) {
		k = exact
	}
	if r.Stated == "default" {
		k = exact
		k.byDefault = true
	}
	if c := s.slots.of(k, r.From); c != nil {
		return c
	}
	return &series{key: k, slots: map[int64]*registeredSlot{}} // there was one when Pays was asked
}

// of is the series with that key, nil when there are too many.
func (cs *slotRegistry) of(k seriesKey, now time.Time) *series {
	cs.mu.RLock()
	c := cs.by[k]
	cs.mu.RUnlock()
	if c != nil {
		return c
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c = cs.by[k]; c != nil {
		return c
	}
	if cs.by == nil {
		cs.by = map[seriesKey]*series{}
	}
	if len(cs.by) >= mostSeries {
		for k, c := range cs.by {
			if c.forgotten(now) {
				delete(cs.by, k)
			}
		}
	}
	if len(cs.by) >= mostSeries {
		return nil
	}
	c = &series{key: k, slots: map[int64]*registeredSlot{}}
	cs.by[k] = c
	return c
}

// forgotten reports that nothing is lost with c.
func (c *series) forgotten(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prune(now)
	stays := int64(1)
	if c.paid > 0 {
		stays = spanStays
	}
	return len(c.slots) == 0 && (!c.key.span || now.Unix()-c.second > stays)
}

// counts counts n messages, if any, and reports whether slots pay at the rate at which they come.
func (c *series) counts(n int64, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch second := now.Unix(); {
	case n == 0:
	case second == c.second+1:
		c.second, c.yesterday, c.now = second, c.now, 0
	case second != c.second:
		c.second, c.yesterday, c.now = second, 0, 0
	}
	c.now += n
	from := paysFrom
	if c.key.span {
		from = spanPaysFrom
	}
	if c.now >= from || c.yesterday >= from {
		c.paid = c.second
		return true
	}
	return c.key.span && c.paid > 0 && c.second-c.paid <= spanStays
}

// prune drops the slots that no message can fall in any more.
func (c *series) prune(now time.Time) {
	over := numberOf(now.Add(c.key.life - slotsKept))
	for n, s := range c.slots {
		if n < over && s.durable {
			delete(c.slots, n)
		}
	}
}

// numberOf is the number of the slot that t falls in.
func numberOf(t time.Time) int64 { return slotEnd(t).UnixNano() / int64(slot) }

// series finishes t when every slot that its messages can fall in has a companion.
func (s *Scheduler) series(t *ticket) {
	w := &slotWait{t: t, left: 1} // which keeps it open until all are asked for
	refs := t.c.References
	alone := !slices.ContainsFunc(refs, func(r Reference) bool { return r.Within != refs[0].Within })
	var last *Reference
	for i := range refs {
		r := &refs[i]
		if last != nil && r.Within == last.Within && r.Stated == last.Stated && r.From.Equal(last.From) && r.Until.Equal(last.Until) {
			continue // as mostly in a batch
		}
		last = r
		c := s.standing(t.c.Entity, r, alone)
		for n := numberOf(r.From.Truncate(stampUnit).Add(r.Within)); n <= numberOf(r.Until.Add(r.Within)); n++ {
			if c.needs(n, w, r.From) {
				s.enter(&ticket{c: c.key.companion(time.Unix(0, n*int64(slot)).UTC()), caller: &slotDone{c, n}})
			}
		}
	}
	w.done(nil)
}

// needs reports whether the slot wants a companion, which the caller has to ask for. Unless it has
// one, w waits for it.
func (c *series) needs(n int64, w *slotWait, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[n]
	if s != nil && s.durable {
		return false
	}
	w.mu.Lock()
	w.left++
	w.mu.Unlock()
	if s != nil {
		s.waiting = append(s.waiting, w)
		return false
	}
	if len(c.slots) >= mostSlots {
		c.prune(now)
	}
	c.slots[n] = &registeredSlot{waiting: []*slotWait{w}}
	return true
}

// slotDone ends the waits for one slot.
type slotDone struct {
	c *series
	n int64
}

// Scheduled ends the waits for the slot. One that has failed is asked for again by the next
// message.
func (st *slotDone) Scheduled(err error) {
	st.c.mu.Lock()
	s := st.c.slots[st.n]
	waiting := s.waiting
	s.waiting, s.durable = nil, err == nil
	if err != nil {
		delete(st.c.slots, st.n)
	}
	st.c.mu.Unlock()
	for _, w := range waiting {
		w.done(err)
	}
}

// hasSlotOf reports whether the slot of r has its companion.
func (cs *slotRegistry) hasSlotOf(entity string, r *Reference) bool {
	slot := numberOf(r.Deadline)
	for _, k := range []seriesKey{{entity: entity, life: r.Within}, spanOf(entity, r.Within), {entity: entity, life: r.Within, byDefault: true}} {
		if cs.has(k, slot) {
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
