// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

var (
	// ErrSlowBody is why a body is not read to its end: it came so slowly, while others needed the
	// memory.
	ErrSlowBody = errors.New("body comes too slowly")
	// ErrNoRoom is why a body is not read to its end: there was no memory for the rest of it.
	ErrNoRoom = errors.New("no room for the body")
)

const (
	firstRoom = 4 << 10  // bytes that a body is given at first
	slowRate  = 32 << 10 // bytes in a second; a body that comes more slowly yields when memory is short
	slowGrace = 2 * time.Second
)

// Bodies bounds the memory of all bodies of requests that are there at once. Memory is taken as
// bytes arrive: what a request states of its length takes none.
//
// A body that finds no room waits for it, in the order of asking. When memory is short, the slowest
// of the bodies that come more slowly than 32 KiB/s yields, after two seconds. If all wait for each
// other, the one that began last yields. One that is larger than the bound has its turn alone. The
// methods are safe for concurrent use.
type Bodies struct {
	total int64

	mu       sync.Mutex
	used     int64
	complete int // bodies that are there whole, whose room will be given back without more
	uploads  map[*upload]struct{}
	waiting  []*upload // for room, the first to ask first
}

// NewBodies returns a bound of so many bytes.
func NewBodies(total int64) *Bodies {
	return &Bodies{total: total, uploads: make(map[*upload]struct{})}
}

// An upload is a body that is being read. The mutex of its Bodies guards it.
type upload struct {
	began     time.Time
	received  int64
	held      int64
	wants     int64         // more bytes, while it waits
	ready     chan struct{} // closed when it has them, or has to yield
	asked     time.Time     // since when it waits
	waited    time.Duration // in all, before
	interrupt func()
	yields    error
}

// Used is how many bytes are taken.
func (b *Bodies) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Read reads r to its end, which is at most most bytes away: a reader that has more has to fail.
// length is what the request states, negative when it states none. interrupt makes a Read of r
// that waits for its peer fail; it is called with a lock held and must not block. done gives the
// room back and is not nil without an error. The error is r's, ErrSlowBody, ErrNoRoom or, when ctx
// ends while the body waits for room, ErrNoRoom too. A body that ends before the length that was
// stated fails with io.ErrUnexpectedEOF.
func (b *Bodies) Read(ctx context.Context, r io.Reader, length, most int64, interrupt func()) (body []byte, done func(), err error) {
	u := &upload{began: time.Now(), interrupt: interrupt}
	b.mu.Lock()
	b.uploads[u] = struct{}{}
	b.mu.Unlock()
	for {
		if len(body) == cap(body) {
			// One byte more than there may be, so that the end is seen.
			size := min(max(2*int64(cap(body)), firstRoom), most+1)
			if length >= 0 {
				size = min(size, length+1)
			}
			if int64(cap(body)) >= size {
				size = int64(cap(body)) + 1 // r states one length and has another
			}
			if err = b.take(ctx, u, size-u.held); err != nil {
				break
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, rerr := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err = b.got(u, n); err == nil {
			err = rerr
		}
		if err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		if err = nil; int64(len(body)) < length {
			err = io.ErrUnexpectedEOF
		}
	}
	if err = b.end(u, err); err != nil {
		return nil, nil, err
	}
	return body, sync.OnceFunc(func() { b.giveBack(u) }), nil
}

// take takes n more bytes for u, and waits until they are there.
func (b *Bodies) take(ctx context.Context, u *upload, n int64) error {
	ready := make(chan struct{})
	b.mu.Lock()
	u.wants, u.ready, u.asked = n, ready, time.Now()
	b.waiting = append(b.waiting, u)
	b.dealLocked()
	b.mu.Unlock()
	for {
		timer := time.NewTimer(slowGrace)
		select {
		case <-ready:
			timer.Stop()
			b.mu.Lock()
			defer b.mu.Unlock()
			return u.yields
		case <-timer.C: // by now somebody may be slow who was not
			b.mu.Lock()
			b.dealLocked()
			b.mu.Unlock()
		case <-ctx.Done():
			timer.Stop()
			b.mu.Lock()
			defer b.mu.Unlock()
			b.yieldLocked(u, ErrNoRoom) // unless it has been decided meanwhile
			return u.yields
		}
	}
}

// got counts n bytes that have come for u, and says whether it has to yield.
func (b *Bodies) got(u *upload, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	u.received += int64(n)
	return u.yields
}

// end follows the last read of u. It returns why there is no body, nil if there is.
func (b *Bodies) end(u *upload, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.uploads, u) // from here on nobody interrupts it
	if u.yields != nil {
		err = u.yields
	}
	if err == nil {
		b.complete++
		return nil
	}
	b.used -= u.held
	b.dealLocked()
	return err
}

// giveBack gives back the bytes of a body that was complete.
func (b *Bodies) giveBack(u *upload) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complete--
	b.used -= u.held
	b.dealLocked()
}

// dealLocked gives room to those that wait, and has others yield when there is none.
func (b *Bodies) dealLocked() {
	for len(b.waiting) > 0 {
		u := b.waiting[0]
		if b.used+u.wants > b.total && b.used > u.held {
			break
		}
		b.used += u.wants
		u.held += u.wants
		b.doneWaitingLocked(u)
	}
	if len(b.waiting) == 0 || b.yieldingLocked() {
		return
	}
	now := time.Now()
	if slow := b.slowestLocked(now); slow != nil {
		b.yieldLocked(slow, ErrSlowBody)
		return
	}
	if b.complete > 0 || len(b.waiting) < len(b.uploads) {
		return // some come to their end by themselves
	}
	last := b.waiting[0]
	for _, u := range b.waiting {
		if u.held > 0 && (u.began.After(last.began) || last.held == 0) {
			last = u
		}
	}
	b.yieldLocked(last, ErrNoRoom)
}

// yieldingLocked reports whether somebody is about to give room back.
func (b *Bodies) yieldingLocked() bool {
	for u := range b.uploads {
		if u.yields != nil && u.held > 0 {
			return true
		}
	}
	return false
}

// slowestLocked is the upload whose peer is the slowest, of those that are too slow.
func (b *Bodies) slowestLocked(now time.Time) (slowest *upload) {
	least := float64(slowRate)
	for u := range b.uploads {
		age := now.Sub(u.began) - u.waited
		if u.ready != nil {
			age -= now.Sub(u.asked)
		}
		if age < slowGrace || u.held == 0 {
			continue
		}
		if rate := float64(u.received) / age.Seconds(); rate < least {
			slowest, least = u, rate
		}
	}
	return slowest
}

// yieldLocked has u end without a body. Its memory is given back when its reader has noticed.
func (b *Bodies) yieldLocked(u *upload, why error) {
	if u.yields != nil {
		return
	}
	if u.ready != nil {
		u.yields = why
		b.doneWaitingLocked(u)
		return
	}
	if _, reading := b.uploads[u]; reading && errors.Is(why, ErrSlowBody) {
		u.yields = why
		u.interrupt()
	}
}

func (b *Bodies) doneWaitingLocked(u *upload) {
	b.waiting = slices.DeleteFunc(b.waiting, func(other *upload) bool { return other == u })
	u.waited += time.Since(u.asked)
	close(u.ready)
	u.ready = nil
}
