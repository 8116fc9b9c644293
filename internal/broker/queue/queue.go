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
	entries       table
	byNumber      index
	waiting       lazyHeap  // active and unlocked, by sequence number
	expiry        lazyHeap  // those of waiting that can expire, by expiresAt
	locks         entryHeap // locked, by lockedUntil
	schedule      entryHeap // scheduled, by scheduledAt
	cleanup       entryHeap // expired and not moved yet, by when they are, see quirk.CleanupLate
	tokens        map[LockToken]*entry
	tokenPeak     int // of len(tokens) since the map was made
	deferred      int
	heldScheduled int // scheduled, and not in schedule, see HoldScheduled
	size          int64
	history       history  // of message-ids
	dying         []*entry // on their way to dead, moved before the mutex is given up
	late          []*entry // dead letters that cannot be found yet, see quirk.DeadLettersLate
	fate          *extra   // why the last of them dies, see condemn
	consumers     consumers
	sessions      *sessions         // nil: this is no session queue
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
	q.numbers.cfg = &q.cfg
	q.history.cfg, q.history.quota = &q.cfg, quota
	q.empty()
	if cfg.RequiresSession {
		q.sessions = newSessions()
	}
	return q
}

// empty takes all messages out of the structures that hold them.
func (q *Queue) empty() {
	q.entries = table{}
	q.byNumber = q.newIndex()
	q.waiting, q.expiry = q.newLazyHeap(itemWaiting), q.newLazyHeap(itemExpiry)
	q.locks, q.schedule, q.cleanup = q.newHeap(), q.newHeap(), q.newHeap()
}

func (q *Queue) newIndex() index { return index{table: &q.entries} }

func (q *Queue) newHeap() entryHeap { return entryHeap{table: &q.entries} }

func (q *Queue) newLazyHeap(own uint8) lazyHeap {
	return lazyHeap{heap: entryHeap{table: &q.entries, loose: true}, own: own}
}

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
		Active:    q.byNumber.len() - q.deferred - scheduled,
		Deferred:  q.deferred,
		Scheduled: scheduled,
		Size:      q.size,

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
		q.quota.add(-q.size - q.history.size)
		// Somebody may keep the queue by a consumer; the messages need not stay with it.
		q.tokens, q.size, q.history = nil, 0, history{}
		q.empty()
	}
	q.mu.Unlock()
	if q.dead != nil {
		q.dead.Close()
	}
}

// admit, wait and drop are the three primitives that everything else is made of.

// admit puts e in the index; it waits nowhere yet.
func (q *Queue) admit(e *entry) {
	q.enlist(e)
	q.size += e.size()
}

// wait makes e available for consumers.
func (q *Queue) wait(e *entry) {
	e.waiting = true
	if q.sessions != nil {
		q.sessions.wait(e)
	} else {
		q.waiting.add(e, arrival(e.seq))
	}
	if e.expiresAt != never && !q.cfg.frozen {
		q.expiry.add(e, int64(e.expiresAt))
	}
}

// unwait is the opposite of wait.
func (q *Queue) unwait(e *entry) {
	e.waiting = false
	if q.sessions != nil {
		q.sessions.unwait(e)
	} else {
		q.waiting.leave()
	}
	if e.expiresAt != never && !q.cfg.frozen {
		q.expiry.leave()
	}
}

// dismiss takes e, which must be unlocked, not waiting and not scheduled, out of the queue.
func (q *Queue) dismiss(e *entry) {
	q.strike(e)
	q.size -= e.size()
	if e.state == Deferred {
		q.deferred--
	}
}

// drop is dismiss for good.
func (q *Queue) drop(e *entry) {
	q.dismiss(e)
	q.quota.add(-e.size())
}
