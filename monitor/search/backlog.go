// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
)

const (
	// maxWaiting bounds the messages of a backlog, to 32 MiB. Those beyond are read each time.
	maxWaiting = 1 << 20
	// bucketLength is how many milliseconds of ends of life one bucket has: a slot reads one or two,
	// and lives of up to an hour have some thirty thousand.
	bucketLength = 128
)

// Waiting is a message that waited when it was read.
type Waiting struct {
	Identity
	Life time.Duration
	Name uint64 // see NameOf
}

var nameSeed = maphash.MakeSeed()

// NameOf stands for a message-id in this process. That of another one of a million is the same by
// chance in one of 10¹³ cases.
func NameOf(messageID string) uint64 { return maphash.String(nameSeed, messageID) }

// A Backlog is what waited on a work queue when it was read once, by the end of its life. It is for
// many times to live: each slot needs some messages from all along a window, and these windows
// overlap. A message in it may be gone since; one that it lacks was gone when it was read.
// One goroutine uses it. The zero Backlog is empty.
type Backlog struct {
	from, until time.Time           // it has what was enqueued from from to before until
	needed      time.Time           // from then on by the windows since the last Take; zero: there was none
	buckets     map[int64][]Waiting // by bucketOf
	waiting     int                 // in all buckets
	most        int                 // instead of maxWaiting; 0: that
}

// Extend has the backlog cover a window, what was enqueued from from to before until, which must be
// SettledAge ago. It reads only what the backlog lacks. Several windows come in the order of time,
// then their messages are taken. lifeOf returns the life of a message; 0: it is not kept. covered
// is before until if the backlog is full, and from if sequence numbers are not in order.
func (b *Backlog) Extend(ctx context.Context, v *View, from, until time.Time, lifeOf func(*link.Message) time.Duration) (covered time.Time, err error) {
	if v.Unordered || !b.reaches(from) {
		b.startAt(from)
	}
	if b.needed.IsZero() {
		b.needed = from
	}
	if v.Unordered || !b.until.Before(until) {
		return b.Covered(from), nil
	}
	start, reached, full := b.until, b.until, false
	err = v.readWindow(ctx, start, until.Add(-1), func(page []*link.Message) (more bool) {
		for _, m := range page {
			life := lifeOf(m)
			if life <= 0 || Pending(m) || m.EnqueuedTime.Before(start) || !m.EnqueuedTime.Before(until) {
				continue
			}
			reached = m.EnqueuedTime
			if full = b.isFull() && !b.dropUnneeded(); full {
				return false
			}
			b.add(Waiting{IdentityOf(m), life, NameOf(m.MessageID)})
		}
		return true
	})
	if errors.Is(err, ErrPartitioned) {
		b.startAt(from)
		return from, nil
	}
	if b.until.IsZero() { // the queue was recreated, and the caller has reset the backlog
		b.from = start
	}
	b.until = until
	if err != nil || full { // more may have been enqueued in the same millisecond
		b.until = reached
		b.dropWhere(func(w Waiting) bool { return !w.EnqueuedTime().Before(reached) })
	}
	return b.Covered(from), err
}

// Covered returns until when the backlog has what was enqueued from an instant on: that instant, if
// it has nothing.
func (b *Backlog) Covered(from time.Time) (until time.Time) {
	if b.reaches(from) && from.Before(b.until) {
		return b.until
	}
	return from
}

// reaches reports whether the backlog goes on to what was enqueued from an instant on. What lies in
// between is read, too, unless nothing is lost without it.
func (b *Backlog) reaches(from time.Time) bool {
	return !from.Before(b.from) && (b.waiting > 0 || !from.After(b.until))
}

// Take calls take with the messages whose life ends after from and at until at the latest, and
// removes those that it accepts.
func (b *Backlog) Take(from, until time.Time, take func(Waiting) bool) {
	b.needed = time.Time{}
	takeOne := func(w Waiting) (removed bool) {
		end := w.EnqueuedTime().Add(w.Life)
		return end.After(from) && !end.After(until) && take(w)
	}
	first, last := bucketOf(from), bucketOf(until)
	if last-first > int64(len(b.buckets)) {
		b.dropWhere(takeOne)
		return
	}
	for bucket := first; bucket <= last; bucket++ {
		b.dropFrom(bucket, takeOne)
	}
}

// Reset forgets everything.
func (b *Backlog) Reset() { b.startAt(time.Time{}) }

func (b *Backlog) startAt(from time.Time) { *b = Backlog{from: from, until: from, most: b.most} }

func (b *Backlog) isFull() bool { return b.waiting >= cmp.Or(b.most, maxWaiting) }

func bucketOf(end time.Time) int64 { return end.UnixMilli() / bucketLength }

func (b *Backlog) add(w Waiting) {
	if b.buckets == nil {
		b.buckets = map[int64][]Waiting{}
	}
	bucket := bucketOf(w.EnqueuedTime().Add(w.Life))
	b.buckets[bucket] = append(b.buckets[bucket], w)
	b.waiting++
}

// dropUnneeded drops what was enqueued before the windows, and reports whether there is room then.
func (b *Backlog) dropUnneeded() bool {
	if b.from.Before(b.needed) {
		b.dropWhere(func(w Waiting) bool { return w.EnqueuedTime().Before(b.needed) })
		b.from = b.needed
	}
	return !b.isFull()
}

// dropWhere drops the messages that match.
func (b *Backlog) dropWhere(matches func(Waiting) bool) {
	for _, bucket := range slices.Sorted(maps.Keys(b.buckets)) {
		b.dropFrom(bucket, matches)
	}
}

func (b *Backlog) dropFrom(bucket int64, matches func(Waiting) bool) {
	left := slices.DeleteFunc(b.buckets[bucket], matches)
	b.waiting -= len(b.buckets[bucket]) - len(left)
	if len(left) > 0 {
		b.buckets[bucket] = left
	} else {
		delete(b.buckets, bucket)
	}
}
