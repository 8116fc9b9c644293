// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
)

// Queue is one queue and its dead-letter queue. Its methods may be called from any goroutine. Make
// one with New.
type Queue struct {
	dead  *Queue // nil: this is a dead-letter queue
	quota *Quota // of the bytes held here and in the dead-letter queue, and elsewhere when it is shared

	mu          sync.Mutex // guards the rest
	cfg         settings   // see Update; Now never changes
	closed      bool
	numbers     numbers
	entries     entries
	waiting     waiting
	schedule    schedule
	expiry      expiry
	deadLetters deadLetters
	locks       locks
	sessions    *Sessions // nil: this is no session queue
	dispatch    dispatcher
	agenda      agenda
	intake      intake
	changes     changes
}

// New makes an empty queue. Close stops its timer.
func New(cfg Config) *Queue {
	cfg = cfg.withDefaults()
	quota := cfg.Shared
	if quota == nil {
		quota = NewQuota(0)
	}
	q := newQueue(settings{Config: cfg}, quota)
	q.dead = newQueue(cfg.forDeadLetters(), quota)
	return q
}

func newQueue(cfg settings, quota *Quota) *Queue {
	var seed [32]byte
	// crypto/rand.Read never fails: it ends the program when the system has no randomness.
	_, _ = rand.Read(seed[:])
	q := &Queue{cfg: cfg, quota: quota}
	if cfg.RequiresSession {
		q.sessions = newSessions(q)
	}
	t := &q.entries.table
	q.numbers.cfg = &q.cfg
	q.changes = changes{
		log:     cfg.Log,
		cfg:     &q.cfg,
		entries: &q.entries,
		numbers: &q.numbers,
		queue:   q,
	}
	q.entries = entries{
		cfg:      &q.cfg,
		changes:  &q.changes,
		quota:    quota,
		sessions: q.sessions,
		byNumber: index{table: t},
	}
	q.waiting = waiting{
		cfg:      &q.cfg,
		entries:  &q.entries,
		sessions: q.sessions,
		line:     newLazyHeap(t, itemWaiting),
		expiry:   newLazyHeap(t, itemExpiry),
	}
	q.schedule = schedule{
		cfg:         &q.cfg,
		entries:     &q.entries,
		numbers:     &q.numbers,
		waiting:     &q.waiting,
		changes:     &q.changes,
		heap:        entryHeap{table: t},
		activatedAt: unset,
	}
	q.deadLetters = deadLetters{
		cfg:     &q.cfg,
		changes: &q.changes,
		entries: &q.entries,
		numbers: &q.numbers,
		waiting: &q.waiting,
	}
	q.expiry = expiry{
		cfg:         &q.cfg,
		entries:     &q.entries,
		waiting:     &q.waiting,
		deadLetters: &q.deadLetters,
		cleanup:     entryHeap{table: t},
	}
	q.locks = locks{
		cfg:         &q.cfg,
		entries:     &q.entries,
		numbers:     &q.numbers,
		sessions:    q.sessions,
		waiting:     &q.waiting,
		expiry:      &q.expiry,
		deadLetters: &q.deadLetters,
		changes:     &q.changes,
		heap:        entryHeap{table: t},
		tokens:      make(map[LockToken]*entry),
		random:      mathrand.NewChaCha8(seed),
	}
	q.intake = intake{
		cfg:         &q.cfg,
		entries:     &q.entries,
		numbers:     &q.numbers,
		sessions:    q.sessions,
		waiting:     &q.waiting,
		schedule:    &q.schedule,
		deadLetters: &q.deadLetters,
		history: history{
			cfg:     &q.cfg,
			quota:   quota,
			changes: &q.changes,
			trimmed: unset,
		},
	}
	q.agenda = agenda{
		cfg:         &q.cfg,
		locks:       &q.locks,
		sessions:    q.sessions,
		schedule:    &q.schedule,
		expiry:      &q.expiry,
		deadLetters: &q.deadLetters,
		history:     &q.intake.history,
		wake:        q.timerRan,
		armedFor:    never,
	}
	q.dispatch = dispatcher{
		cfg:      &q.cfg,
		waiting:  &q.waiting,
		expiry:   &q.expiry,
		sessions: q.sessions,
		agenda:   &q.agenda,
	}
	return q
}

// Sessions is the sessions of a session queue; nil on another, and on a dead-letter queue.
func (q *Queue) Sessions() *Sessions { return q.sessions }

// Config is what the queue was made with or updated to, defaults filled in.
func (q *Queue) Config() Config {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cfg.Config
}

// Update changes the settings that a queue can change in its life: LockDuration, MaxDeliveryCount,
// DefaultMessageTimeToLive, DeadLetteringOnMessageExpiration and DuplicateDetectionHistoryTimeWindow. The rest of cfg is not looked at. Messages keep the
// values that they have already: a lock its end, a message its time to live. Errors: ErrClosed.
func (q *Queue) Update(cfg Config) error {
	cfg = cfg.withDefaults()
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.leave(now)
	q.cfg.change(cfg)
	if q.dead != nil {
		q.dead.mu.Lock()
		q.dead.cfg.change(cfg)
		q.dead.mu.Unlock()
	}
	return nil
}

// DeadLetterQueue is the queue of what was dead-lettered here; nil on a dead-letter queue. There is
// nothing it expires, and it counts no deliveries. Messages in it keep their sequence number,
// enqueued time and delivery count.
func (q *Queue) DeadLetterQueue() *Queue { return q.dead }

// enter locks the queue and brings it up to date with the clock. Unless it fails, leave must
// follow.
func (q *Queue) enter() (now instant, err error) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return 0, ErrClosed
	}
	now = instantOf(q.cfg.Now())
	q.agenda.catchUp(now)
	return now, nil
}

// leave does what follows from what was done since enter: waiting messages go to consumers with
// credit, dead ones to the dead-letter queue, and the timer is armed.
func (q *Queue) leave(now instant) {
	q.dispatch.assign(now)
	q.dispatch.endDrains(now)
	q.deadLetters.bury(q.dead, now)
	q.changes.report()
	q.agenda.arm(now)
	q.mu.Unlock()
}

// Closed reports whether Close was called.
func (q *Queue) Closed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Wake makes the queue look at the clock. Only a test or an operator who sets Config.Now forward
// needs it: the timer would notice after a minute at the latest.
func (q *Queue) Wake() {
	if now, err := q.enter(); err == nil {
		q.leave(now)
	}
	if q.dead != nil {
		q.dead.Wake()
	}
}

// Counts is what the queue holds. When closed, it is zero.
func (q *Queue) Counts() Counts {
	now, err := q.enter()
	if err != nil {
		return Counts{}
	}
	defer q.leave(now)
	n := q.count(now)
	if q.dead != nil {
		n.addDead(q.dead.Counts()) // under both mutexes, so that a message on its way is counted exactly once
	}
	return n
}

// count is Counts without the dead-letter queue.
func (q *Queue) count(now instant) Counts {
	q.dispatch.assign(now) // what catching up gave back is counted the same, but may expire here
	q.deadLetters.bury(q.dead, now)
	scheduled := q.schedule.len()
	return Counts{
		Active:    q.entries.byNumber.len() - q.entries.deferred - scheduled,
		Deferred:  q.entries.deferred,
		Scheduled: scheduled,
		Size:      q.entries.size,

		DuplicateHistory: q.intake.history.len(),
	}
}

// Close ends the queue, its dead-letter queue and all their consumers. Every operation fails with
// ErrClosed from then on.
func (q *Queue) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.agenda.stop()
		q.dispatch.consumers.closeAll()
		q.sessions.closeAll()
		q.dispatch.undrained = nil
		for _, e := range q.deadLetters.late {
			q.quota.add(-e.size())
		}
		q.quota.add(-q.entries.size - q.intake.history.size)
		// Somebody may keep the queue by a consumer; the messages need not stay with it.
		q.entries, q.waiting, q.intake = entries{}, waiting{}, intake{}
		q.schedule, q.expiry = schedule{}, expiry{}
		q.deadLetters, q.locks = deadLetters{}, locks{}
		q.changes.close()
	}
	q.mu.Unlock()
	if q.dead != nil {
		q.dead.Close()
	}
}
