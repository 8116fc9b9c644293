// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"overdue/internal/broker/queue"
)

// A committer writes batches, one at a time. Steps that are appended while one is under way
// leave with the next.
type committer struct {
	db       *pebble.DB
	disk     *patientFS
	wake     chan struct{} // there is something in next, or the end
	written  chan *round
	ended    chan struct{} // write and answer have
	troubled chan struct{} // trouble has begun

	// gate keeps what belongs together in one batch, see Hold.
	gate sync.RWMutex

	mu      sync.Mutex
	next    round
	flying  *round // under way; nil: none
	over    bool
	highest uint32           // number that an entity ever had
	last    map[uint32]int64 // where the numbers of messages stand in each queue, see Step
}

// A round is a batch and those who wait for it.
type round struct {
	batch    *pebble.Batch   // nil: nothing was appended
	numbered map[uint32]bool // queues that have given out numbers
	waiters  []func(error)
	onDisk   []func() // see queue.Step
	value    []byte   // its memory is used again

	incomplete bool // a change is missing: it must not be written
}

func (c *committer) start(db *pebble.DB, disk *patientFS) {
	c.db, c.disk = db, disk
	c.wake = make(chan struct{}, 1)
	c.written = make(chan *round)
	c.ended = make(chan struct{})
	c.troubled = make(chan struct{}, 1)
	disk.notify(c.giveUp)
	go c.write()
	go c.answer()
}

// append adds to the next batch what f puts there, as a whole. After stop it adds nothing. An error
// of f is the end of writing: what is on disk must not go on without this change.
func (c *committer) append(f func(r *round) error) {
	c.mu.Lock()
	var err error
	if !c.over {
		if c.next.batch == nil {
			c.next.batch = c.db.NewBatch()
			c.next.numbered = make(map[uint32]bool)
		}
		err = f(&c.next)
		c.next.incomplete = c.next.incomplete || err != nil
	}
	c.mu.Unlock()
	if err != nil {
		c.disk.refuse(err)
	}
	c.signal()
}

func (c *committer) signal() {
	select {
	case c.wake <- struct{}{}:
	default: // said already
	}
}

// Hold keeps what is appended until release from being parted: a crash leaves all of it or none.
// A holder must neither wait for the disk nor hold once more.
func (c *committer) Hold() (release func()) {
	c.gate.RLock()
	return c.gate.RUnlock
}

// After calls f when everything is on disk that was appended before, and at once when it is there
// already. Where that cannot be said, f gets queue.ErrNoRoom, or queue.ErrNotStored after a failure or
// Close. After queue.ErrNoRoom it is written all the same as soon as there is room. f must not wait.
func (c *committer) After(f func(error)) {
	err := c.disk.trouble()
	c.mu.Lock()
	waits := c.flying
	if c.next.batch != nil {
		waits = &c.next
	}
	if err == nil && c.over && waits != nil {
		err = queue.ErrNotStored
	}
	if waits != nil && err == nil {
		waits.waiters = append(waits.waiters, f)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	f(err)
}

// maxBacklogBytes is how much may wait for a full disk, besides what moves by itself. A delivery
// adds 100 bytes.
const maxBacklogBytes = 16 << 20

// Backlog is queue.ErrNoRoom when so much waits for a full disk that nobody may add to it.
func (c *committer) Backlog() error {
	err := c.disk.trouble()
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next.batch == nil || c.next.batch.Len() < maxBacklogBytes {
		return nil
	}
	return err
}

// cut takes the next batch, nil when there is none. No more are to come when over.
func (c *committer) cut() (r *round, over bool) {
	c.gate.Lock()
	defer c.gate.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next.batch == nil {
		return nil, c.over
	}
	taken := c.next
	c.next, c.flying = round{value: taken.value}, &taken
	return &taken, c.over
}

// write writes until stop.
func (c *committer) write() {
	defer close(c.written)
	for range c.wake {
		r, over := c.cut()
		switch {
		case r == nil:
		case r.incomplete:
			return
		default:
			c.commit(r)
		}
		if over {
			return
		}
	}
}

func (c *committer) commit(r *round) {
	// Not an error of the disk: see patientFS. Pebble would have ended the process by its logger.
	err := c.reserve(r)
	changes, began := int(r.batch.Count()), time.Now()
	if err == nil {
		err = errors.Join(r.batch.Commit(pebble.Sync), r.batch.Close()) // its memory is used again
	}
	if err == nil {
		c.disk.observer.Committed(changes, time.Since(began))
	}
	c.mu.Lock()
	c.flying = nil // so nobody has r but this
	c.mu.Unlock()
	if err != nil {
		c.disk.refuse(err)
		go tell(r.waiters, c.disk.trouble())
		return
	}
	if len(r.waiters)+len(r.onDisk) > 0 {
		c.written <- r
	}
}

// answer tells those who wait, while the next batch is written.
func (c *committer) answer() {
	for r := range c.written {
		tell(r.waiters, nil)
		for _, f := range r.onDisk {
			f()
		}
	}
	close(c.ended)
}

func tell(waiters []func(error), err error) {
	for _, f := range waiters {
		f(err)
	}
}

// giveUp tells those who wait that trouble has begun. A write that waits for the disk
// calls it, so it must not wait for the waiters. When nothing can be written any more, nothing is
// collected either.
func (c *committer) giveUp(err error) {
	c.mu.Lock()
	waiters := c.next.waiters
	c.next.waiters = nil
	if c.flying != nil {
		waiters = append(c.flying.waiters, waiters...)
		c.flying.waiters = nil
	}
	if errors.Is(err, queue.ErrNotStored) {
		c.over, c.next = true, round{}
	}
	c.mu.Unlock()
	go tell(waiters, err)
	select {
	case c.troubled <- struct{}{}:
	default:
	}
}

// stop writes what was appended and ends. It does not wait for a disk that is stuck: the error says
// that a change may be missing whose outcome no client has got.
func (c *committer) stop() error {
	c.append(c.returnNumbers)
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.signal()
	for {
		if err := c.disk.stuck(); err != nil {
			return err
		}
		select {
		case <-c.ended:
			return nil
		case <-c.troubled:
		}
	}
}
