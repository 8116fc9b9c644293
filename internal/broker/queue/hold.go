// SPDX-License-Identifier: Apache-2.0

package queue

// Held is a settlement that is prepared and cannot fail any more, but for the end of the queue: a
// part of a transaction. Exactly one of Settle and Cancel must follow.
type Held struct {
	q     *Queue
	how   Settlement
	parts []heldPart
}

type heldPart struct {
	e *entry
	x *extra // what e will have beyond the ordinary, nil: what it has

	session *Session // under whose lock e was delivered, nil: under one of its own
}

// purged reports that the message is gone, see Queue.Purge. Nothing else takes what is held.
func (p *heldPart) purged() bool { return p.e.kept&keptGone != 0 }

// Hold prepares to settle these deliveries, all or none. Until Settle or Cancel their locks do not
// lapse, and nobody else can settle them; they can be renewed. Errors are those of the settlement:
// ErrLockLost, also for a token that is named twice or held already; ErrPropertiesTooLarge,
// ErrDeadLetterQueue, ErrClosed.
func (q *Queue) Hold(s Settlement, tokens ...LockToken) (*Held, error) {
	now, err := q.enter()
	if err != nil {
		return nil, err
	}
	defer q.leave(now)
	h := &Held{q: q, how: s, parts: make([]heldPart, 0, len(tokens))}
	for _, t := range tokens {
		e, x, err := q.locks.prepare(&s, t)
		if err != nil {
			h.letGo(now)
			q.locks.lapse(now)
			return nil, err
		}
		locks, _, _ := q.locks.lockedWith(e, now)
		locks.remove(e)
		q.locks.setHeld(e, true)
		h.parts = append(h.parts, heldPart{e, x, q.sessions.lockOf(e)})
	}
	return h, nil
}

// HoldScheduled prepares to cancel scheduled messages, all or none. Until Settle or Cancel they are
// not activated, and nobody else can cancel them. Errors are those of CancelScheduled.
func (q *Queue) HoldScheduled(seqs ...int64) (*Held, error) {
	now, err := q.enter()
	if err != nil {
		return nil, err
	}
	defer q.leave(now)
	es, err := q.schedule.pending(seqs)
	if err != nil {
		return nil, err
	}
	h := &Held{q: q, parts: make([]heldPart, len(es))}
	for i, e := range es {
		q.schedule.hold(e)
		h.parts[i].e = e
	}
	return h, nil
}

// Partition is that of everything held, 0 where there are none. It reports false for several.
func (h *Held) Partition() (p int64, one bool) {
	return onePartition(len(h.parts), func(i int) int64 { return h.parts[i].e.seq >> partitionShift })
}

// Settle does what Hold or HoldScheduled has prepared. Errors: ErrClosed.
func (h *Held) Settle() error {
	now, err := h.q.enter()
	if err != nil {
		return err
	}
	defer h.q.leave(now)
	for _, p := range h.parts {
		switch {
		case p.purged():
		case p.e.state == Scheduled:
			h.q.schedule.held--
			h.q.entries.drop(p.e)
		default:
			h.q.locks.perform(&h.how, p.e, p.x, now)
		}
	}
	h.parts = nil
	return nil
}

// SettleEach is Settle with an outcome of its own for each delivery, in the order in which they
// were held; nil cancels that one. Properties are ignored, and dead letters stay in the dead-letter
// queue. Errors: ErrClosed.
func (h *Held) SettleEach(how func(i int) *Settlement) error {
	now, err := h.q.enter()
	if err != nil {
		return err
	}
	defer h.q.leave(now)
	for i, p := range h.parts {
		switch s := how(i); {
		case p.purged():
		case s == nil || h.q.cfg.frozen && s.Outcome == DeadLetter:
			h.letGoOf(p, now)
		default:
			h.q.locks.perform(s, p.e, nil, now)
		}
	}
	h.parts = nil
	h.q.agenda.catchUp(now)
	return nil
}

// Cancel lets the locks go on as if nothing had happened. A lock whose time is over lapses at once,
// and a delivery under the lock of a session that has ended goes back to that session. A scheduled
// message that is due is activated.
func (h *Held) Cancel() {
	now, err := h.q.enter()
	if err != nil {
		return // the messages are gone with the queue
	}
	defer h.q.leave(now)
	h.letGo(now)
	h.q.agenda.catchUp(now)
}

// letGo hands the locks back to time.
func (h *Held) letGo(now instant) {
	for _, p := range h.parts {
		h.letGoOf(p, now)
	}
	h.parts = nil
}

func (h *Held) letGoOf(p heldPart, now instant) {
	if p.purged() {
		return
	}
	if p.session != nil && p.session.over {
		h.q.locks.giveBack(p.e, p.session.lapsed, now)
		return
	}
	if p.e.state == Scheduled {
		h.q.schedule.release(p.e)
		return
	}
	h.q.locks.setHeld(p.e, false)
	if p.session == nil {
		h.q.locks.heap.push(p.e, int64(p.e.lockedUntil))
		return
	}
	p.session.locked.push(p.e, arrival(p.e.seq))
}

// Reserved is messages that have a place in the queue and are not in it yet: a part of a
// transaction. Exactly one of Send and Cancel must follow.
type Reserved struct {
	q       *Queue
	ms      []Message
	numbers []int64 // theirs, nil: they get them when they are sent
	size    int64
}

// Reserve reserves space for ms, all or none. If numbered they have their numbers from then on, for a
// caller who wants to cancel by them later. Errors: those of Queue.Send.
func (q *Queue) Reserve(numbered bool, ms ...Message) (*Reserved, error) {
	if q.cfg.frozen {
		return nil, ErrDeadLetterQueue
	}
	now, err := q.enter()
	if err != nil {
		return nil, err
	}
	defer q.leave(now)
	r := &Reserved{q: q, ms: ms}
	for i := range ms {
		r.size += ms[i].size()
		if q.cfg.RequiresDuplicateDetection {
			r.size += historyCost(q.intake.history.key(&ms[i]))
		}
	}
	if err := q.intake.refusal(ms); err != nil {
		return nil, err
	}
	if !q.quota.take(r.size) {
		return nil, ErrFull
	}
	if numbered {
		r.numbers = q.numbers.nextOf(ms)
	}
	return r, nil
}

// Numbers are those of the messages, which Send makes good; nil: they have none yet.
func (r *Reserved) Numbers() []int64 { return r.numbers }

// Partition is Held.Partition. A message that goes to any partition has none yet.
func (r *Reserved) Partition() (p int64, one bool) {
	return onePartition(len(r.ms), func(i int) int64 { return r.q.numbers.keyedPartition(&r.ms[i]) })
}

// Send is Queue.Send of what was reserved: now the messages get their numbers, and their time to
// live runs. Errors: ErrClosed.
func (r *Reserved) Send() (first int64, err error) {
	now, err := r.q.enter()
	if err != nil {
		r.Cancel()
		return 0, err
	}
	defer r.q.leave(now)
	// Under the mutex, and nothing in between that can be refused: store takes what was reserved, or
	// less.
	duplicate, _ := r.q.intake.room(r.ms, now, func(need int64) bool {
		r.q.quota.add(need - r.size)
		return true
	})
	first = r.q.intake.store(r.ms, duplicate, r.numbers, now)
	r.ms, r.size = nil, 0
	return first, nil
}

// Cancel releases the space.
func (r *Reserved) Cancel() {
	r.q.quota.add(-r.size)
	r.ms, r.size = nil, 0
}
