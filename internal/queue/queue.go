// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Queue is one queue and its dead-letter queue. Its methods may be called from any goroutine. Make one with New.
type Queue struct {
	cfg  Config
	dead *Queue        // nil: this is a dead-letter queue
	used *atomic.Int64 // bytes held together with the dead-letter queue

	mu        sync.Mutex
	closed    bool
	lastSeq   int64
	byNumber  index
	waiting   entryHeap // active and unlocked, by sequence number
	expiry    entryHeap // those of waiting that can expire, by expiresAt
	locks     entryHeap // locked, by lockedUntil
	schedule  entryHeap // scheduled, by scheduledAt
	tokens    map[LockToken]*entry
	tokenPeak int // of len(tokens) since the map was made
	deferred  int
	size      int64
	dying     []*entry // on their way to dead, moved before the mutex is given up
	consumers consumers
	random    *mathrand.ChaCha8 // lock tokens
	timer     *time.Timer
	armedFor  instant // when timer runs, by the broker's clock; never: it does not
}

// New makes an empty queue. Close stops its timer.
func New(cfg Config) *Queue {
	cfg = cfg.withDefaults()
	used := new(atomic.Int64)
	q := newQueue(cfg, used)
	// Nothing expires in a dead-letter queue, and its delivery counts are frozen (see frozen).
	cfg.DefaultMessageTimeToLive = 0
	q.dead = newQueue(cfg, used)
	return q
}

func newQueue(cfg Config, used *atomic.Int64) *Queue {
	var seed [32]byte
	// crypto/rand.Read never fails: it ends the program when the system has no randomness.
	_, _ = rand.Read(seed[:])
	return &Queue{
		cfg:      cfg,
		used:     used,
		waiting:  entryHeap{slot: slotPlace},
		expiry:   entryHeap{slot: slotExpiry},
		locks:    entryHeap{slot: slotPlace},
		schedule: entryHeap{slot: slotPlace},
		tokens:   make(map[LockToken]*entry),
		random:   mathrand.NewChaCha8(seed),
		armedFor: never,
	}
}

// Config is what the queue was made with, defaults filled in.
func (q *Queue) Config() Config { return q.cfg }

// DeadLetterQueue is the queue of what was dead-lettered here; nil on a dead-letter queue. There is nothing it expires,
// and it counts no deliveries. Messages in it keep their sequence number, enqueued time and delivery count.
func (q *Queue) DeadLetterQueue() *Queue { return q.dead }

// frozen: this is a dead-letter queue.
func (q *Queue) frozen() bool { return q.dead == nil }

// enter locks the queue and brings it up to date with the clock. Unless it fails, leave must follow.
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

// leave does what follows from what was done since enter: waiting messages go to consumers with credit, dead ones to
// the dead-letter queue, and the timer is armed.
func (q *Queue) leave(now instant) {
	q.assign(now)
	q.bury(now)
	q.arm(now)
	q.mu.Unlock()
}

// Wake makes the queue look at the clock. Only a test or an operator who sets Config.Now forward needs it: the timer
// would notice after a minute at the latest.
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
	n := Counts{
		Active:    q.byNumber.len() - q.deferred - q.schedule.len(),
		Deferred:  q.deferred,
		Scheduled: q.schedule.len(),
		Size:      q.size,
	}
	if q.dead != nil {
		// Under both mutexes, so that a message on its way is counted exactly once.
		d := q.dead.Counts()
		n.DeadLetter = d.Active + d.Deferred
		n.Size += d.Size
	}
	q.leave(now)
	return n
}

// Close ends the queue, its dead-letter queue and all their consumers. Every operation fails with ErrClosed from then
// on.
func (q *Queue) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		if q.timer != nil {
			q.timer.Stop()
		}
		q.consumers.closeAll()
		q.used.Add(-q.size)
		// Somebody may keep the queue by a consumer; the messages need not stay with it.
		q.byNumber, q.tokens, q.size = index{}, nil, 0
		q.waiting, q.expiry, q.locks, q.schedule = entryHeap{}, entryHeap{}, entryHeap{}, entryHeap{}
	}
	q.mu.Unlock()
	if q.dead != nil {
		q.dead.Close()
	}
}

// admit, wait and drop are the three primitives that everything else is made of.

// admit puts e in the index; it waits nowhere yet.
func (q *Queue) admit(e *entry) {
	q.byNumber.insert(e)
	q.size += e.size()
}

// wait makes e available for consumers.
func (q *Queue) wait(e *entry) {
	q.waiting.push(e, e.seq)
	if e.expiresAt != never && !q.frozen() {
		q.expiry.push(e, int64(e.expiresAt))
	}
}

// unwait is the opposite of wait.
func (q *Queue) unwait(e *entry) {
	q.waiting.remove(e)
	if e.pos[slotExpiry] != nowhere {
		q.expiry.remove(e)
	}
}

// dismiss takes e, which must be unlocked, not waiting and not scheduled, out of the queue.
func (q *Queue) dismiss(e *entry) {
	q.byNumber.remove(e.seq)
	q.size -= e.size()
	if e.state == Deferred {
		q.deferred--
	}
}

// drop is dismiss for good.
func (q *Queue) drop(e *entry) {
	q.dismiss(e)
	q.used.Add(-e.size())
}
