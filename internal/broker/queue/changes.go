// SPDX-License-Identifier: Apache-2.0

package queue

// changes collects what one operation changes in a queue and gives it to the log as one step.
// Without a log it does nothing.
type changes struct {
	log     Log // nil: there is none
	cfg     *settings
	entries *entries
	numbers *numbers
	queue   *Queue   // for putAway
	inUse   int      // bytes of contents that the log lets stay in memory
	last    int64    // of numbers, as the log has it
	noted   []*entry // not reported yet
	step    Step     // its memory is used again
}

// The bits of entry.kept.
const (
	keptLogged  = 1 << iota // the log has the entry
	keptNoted               // it stands in changes.noted
	keptGone                // it is in no queue any more
	keptDead                // it is in the dead-letter queue
	keptRemoved             // it is locked, and gone for the log, see LockAndRemove
	keptInUse               // its content counts in changes.inUse
	keptAgain               // it was gone for the log: its content stays in memory
)

// A recordNumber is what the log calls an entry: its first place in the order of arrival. It has six
// bytes of an entry that would be unused otherwise.
type recordNumber [6]byte

func recordOf(seq int64) (n recordNumber) {
	for i := range n {
		n[i] = byte(seq >> (8 * i))
	}
	return n
}

func (n recordNumber) int64() (record int64) {
	for i, b := range n {
		record |= int64(b) << (8 * i)
	}
	return record
}

// note says that e is new, gone, or has other stamps. It is small, since most queues have no log.
func (c *changes) note(e *entry) {
	if c.log != nil {
		c.add(e)
	}
}

func (c *changes) add(e *entry) {
	if e.kept&keptNoted == 0 {
		e.kept |= keptNoted
		c.noted = append(c.noted, e)
	}
}

// noteTaken is note for an entry that somebody was given.
func (c *changes) noteTaken(e *entry, mode Mode) {
	if mode == LockAndRemove {
		e.kept |= keptRemoved
	}
	c.note(e)
}

// noteGone is note for an entry that leaves for good.
func (c *changes) noteGone(e *entry) {
	e.kept |= keptGone
	c.note(e)
}

// noteState says that s has another state, or none.
func (c *changes) noteState(s *session) {
	if c.log == nil {
		return
	}
	change := Change{Fate: StateSet}
	change.SessionID = s.id
	if s.state != nil {
		change.Body, change.EnqueuedTime = s.state.data, s.state.updatedAt.time()
	}
	c.step.Changes = append(c.step.Changes, change)
}

// noteSent says that these message-ids were sent.
func (c *changes) noteSent(ids []remembered) {
	if c.log == nil {
		return
	}
	for _, id := range ids {
		change := Change{Fate: IDSent}
		change.MessageID, change.EnqueuedTime = id.key, id.at.time()
		c.step.Changes = append(c.step.Changes, change)
	}
}

// noteExpired says that what was sent before is no longer remembered.
func (c *changes) noteExpired(before instant) {
	change := Change{Fate: IDsExpired}
	change.EnqueuedTime = before.time()
	c.step.Changes = append(c.step.Changes, change)
}

// report gives the log what was noted, if anything was.
func (c *changes) report() {
	if c.log != nil && (len(c.noted) > 0 || len(c.step.Changes) > 0 || c.numbers.last != c.last) {
		c.append()
	}
}

// append is report of one step. An entry that has come and gone in it needs no place there.
func (c *changes) append() {
	s := &c.step
	if c.last != c.numbers.last && !c.cfg.frozen { // a dead-letter queue gives out no numbers that a client could know before
		s.Last = c.numbers.position()
	}
	c.last = c.numbers.last
	var leaving []*entry
	for _, e := range c.noted {
		e.kept &^= keptNoted
		gone, logged := e.kept&(keptGone|keptRemoved) != 0, e.kept&keptLogged != 0
		if gone && !logged {
			continue
		}
		change := Change{
			Fate:   Changed,
			Record: e.record.int64(),
			Stored: c.entries.stored(e),
		}
		switch {
		case gone:
			change.Fate = Removed
			c.release(e)
		case !logged:
			change.Fate = Added
			if !c.keep(e) {
				leaving = append(leaving, e)
			}
		}
		s.Changes = append(s.Changes, change)
	}
	if len(leaving) > 0 {
		s.OnDisk = func() { putAway(c.queue, leaving) }
	}
	if s.Last > 0 || len(s.Changes) > 0 {
		c.log.Append(s)
	}
	clear(c.noted)
	clear(s.Changes) // bodies are not kept for the next step
	c.noted, s.Changes, s.Last, s.OnDisk = c.noted[:0], s.Changes[:0], 0, nil
}

// stored is e as the log keeps it.
func (es *entries) stored(e *entry) Stored {
	s := Stored{
		View:      es.view(e),
		Dead:      e.kept&keptDead != 0,
		Delivered: e.taken(),

		ContentSize: int(e.contentSize),
	}
	s.EnqueuedTime = e.enqueuedAt.time() // which a quirk may hide
	return s
}

// taken reports whether somebody was given the message and has not settled it.
func (d *delivered) taken() bool { return d.locked && d.holder == nil }

// Restore puts back what the log has kept: a message, the state of a session, or a message-id. It is
// for a queue that nobody uses yet; Resume has to follow. A message that was delivered is given back
// as if its lock had lapsed. Its content is read when it is needed, unless c has it.
func (q *Queue) Restore(c *Change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch c.Fate {
	case StateSet:
		if q.sessions != nil {
			q.sessions.restoreState(c.SessionID, c.Body, instantOf(c.EnqueuedTime))
		}
		return
	case IDSent:
		q.intake.history.restore(c.MessageID, instantOf(c.EnqueuedTime))
		return
	}
	e := c.entry()
	q.quota.add(e.size())
	now := instantOf(q.cfg.Now())
	if !c.Dead {
		q.restore(e, c.Delivered, now)
		return
	}
	q.dead.mu.Lock()
	defer q.dead.mu.Unlock()
	q.dead.restore(e, c.Delivered, now)
}

func (q *Queue) restore(e *entry, delivered bool, now instant) {
	q.entries.admit(e)
	if q.cfg.frozen { // with quirk.DeadLettersRenumbered it has given out that number
		q.numbers.last = max(q.numbers.last, arrival(e.seq))
	}
	switch e.state {
	case Scheduled:
		q.schedule.add(e)
		return
	case Deferred:
		q.entries.deferred++
	}
	switch {
	case delivered:
		q.locks.lock(e, ReceiveAndDelete, now)
		q.changes.note(e)
		q.locks.giveBack(e, true, now)
		e.lockedUntil = unset
	case e.state == Active:
		q.waiting.add(e)
	}
}

// Resume ends what Restore has begun: the queue goes on where it stopped. last is the latest that
// the log has of Step.Last. Errors: ErrClosed.
func (q *Queue) Resume(last int64) error {
	q.mu.Lock()
	q.numbers.resume(last)
	q.changes.last = q.numbers.last
	q.mu.Unlock()
	now, err := q.enter()
	if err != nil {
		return err
	}
	q.leave(now)
	q.dead.Wake()
	return nil
}

// entry is the entry of c, as it was.
func (c *Change) entry() *entry {
	m := &c.Stored
	e := &entry{
		seq:         m.SequenceNumber,
		record:      recordOf(c.Record),
		kept:        keptLogged,
		body:        m.Body,
		messageID:   m.MessageID,
		contentSize: uint32(m.ContentSize),
		sessionID:   m.SessionID,
		marks:       m.marks(),
		ttl:         m.TTL,
		scheduledAt: unset,
		enqueuedAt:  instantOf(m.EnqueuedTime),
		expiresAt:   never,
		delivered: delivered{
			lockedUntil: unset,
			count:       int32(m.DeliveryCount),
			state:       m.State,
		},
	}
	if m.EntityTTL {
		e.marks |= markEntityTTL
	}
	if !m.ScheduledEnqueueTime.IsZero() {
		e.scheduledAt = instantOf(m.ScheduledEnqueueTime)
	}
	if !m.ExpiresAt.IsZero() {
		e.expiresAt = instantOf(m.ExpiresAt)
	}
	x, has := m.extra()
	if m.Dead {
		x.deadLetteredAt = instantOf(m.DeadLetteredTime)
		e.kept |= keptDead
	}
	if has || m.Dead {
		e.extra = &x
	}
	return e
}
