// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
	"time"
)

// Queue is one queue and its dead-letter queue. Its methods may be called from any goroutine. Make
// one with New.
type Queue struct {
	dead  *Queue // nil: this is a dead-letter queue
	quota *Quota // of the bytes held here and in the dead-letter queue, and elsewhere when it is shared

	mu            sync.Mutex
	cfg           settings // see Update; Now never changes
	closed        bool
	activated     instant // when a scheduled message was last activated, unset: never
	numbers       numbers
	entries       entries
	waiting       waiting
	locks         entryHeap // locked, by lockedUntil
	schedule      entryHeap // scheduled, by scheduledAt
	cleanup       entryHeap // expired and not moved yet, by when they are, see quirk.CleanupLate
	tokens        map[LockToken]*entry
	tokenPeak     int      // of len(tokens) since the map was made
	heldScheduled int      // scheduled, and not in schedule, see HoldScheduled
	history       history  // of message-ids
	dying         []*entry // on their way to dead, moved before the mutex is given up
	late          []*entry // dead letters that cannot be found yet, see quirk.DeadLettersLate
	fate          *extra   // why the last of them dies, see condemn
	consumers     consumers
	sessions      *Sessions         // nil: this is no session queue
	moving        bool              // a receive has left expired messages to the timer, see flushWave
	undrained     []*Consumer       // their drains wait for what is due and was left to the timer
	random        *mathrand.ChaCha8 // lock tokens
	timer         *time.Timer
	armedFor      instant // when timer runs, by the broker's clock; never: it does not
}

// New makes an empty queue. Close stops its timer.
func New(cfg Config) *Queue {
	cfg = cfg.withDefaults()
	quota := cfg.Shared
	if quota == nil {
		quota = NewQuota(cfg.MaxSize)
	}
	q := newQueue(settings{Config: cfg}, quota)
	q.dead = newQueue(cfg.forDeadLetters(), quota)
	return q
}

func newQueue(cfg settings, quota *Quota) *Queue {
	var seed [32]byte
	// crypto/rand.Read never fails: it ends the program when the system has no randomness.
	_, _ = rand.Read(seed[:])
	q := &Queue{
		cfg:       cfg,
		quota:     quota,
		activated: unset,
		tokens:    make(map[LockToken]*entry),
		random:    mathrand.NewChaCha8(seed),
		armedFor:  never,
	}
	if cfg.RequiresSession {
		q.sessions = newSessions(q)
	}
	t := &q.entries.table
	q.numbers.cfg = &q.cfg
	q.history.cfg, q.history.quota = &q.cfg, quota
	q.entries = entries{
		cfg:      &q.cfg,
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
	q.locks, q.schedule, q.cleanup = entryHeap{table: t}, entryHeap{table: t}, entryHeap{table: t}
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
	q.catchUp(now)
	return now, nil
}

// leave does what follows from what was done since enter: waiting messages go to consumers with
// credit, dead ones to the dead-letter queue, and the timer is armed.
func (q *Queue) leave(now instant) {
	q.assign(now)
	q.endDrains(now)
	q.bury(now)
	q.arm(now)
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
	q.assign(now) // what catching up gave back is counted the same, but may expire here
	q.bury(now)
	scheduled := q.schedule.len() + q.heldScheduled
	n := Counts{
		Active:    q.entries.byNumber.len() - q.entries.deferred - scheduled,
		Deferred:  q.entries.deferred,
		Scheduled: scheduled,
		Size:      q.entries.size,

		DuplicateHistory: q.history.len(),
	}
	// Under both mutexes, so that a message on its way is counted exactly once.
	if q.dead != nil {
		d := q.dead.Counts()
		n.DeadLetter = d.Active + d.Deferred
		n.Size += d.Size
	}
	q.leave(now)
	return n
}

// Close ends the queue, its dead-letter queue and all their consumers. Every operation fails with
// ErrClosed from then on.
func (q *Queue) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		if q.timer != nil {
			q.timer.Stop()
		}
		q.consumers.closeAll()
		q.sessions.closeAll()
		q.undrained = nil
		for _, e := range q.late {
			q.quota.add(-e.size())
		}
		q.late = nil
		q.quota.add(-q.entries.size - q.history.size)
		// Somebody may keep the queue by a consumer; the messages need not stay with it.
		q.entries, q.waiting, q.history = entries{}, waiting{}, history{}
		q.tokens, q.locks, q.schedule, q.cleanup = nil, entryHeap{}, entryHeap{}, entryHeap{}
	}
	q.mu.Unlock()
	if q.dead != nil {
		q.dead.Close()
	}
}
