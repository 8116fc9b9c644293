// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
)

const (
	// maxAhead bounds the pages that are read ahead, so that a burst of sends does not delay what is
	// due.
	maxAhead = 4
	// maxReads bounds the reads whose time is known, to some minutes of sends.
	maxReads = 256
)

// maxWaiting bounds the messages of a backlog, to 32 MiB. Those beyond are read each time.
const maxWaiting = 1 << 20

// Waiting is a message that waited when it was read.
type Waiting struct {
	Identity
	Life time.Duration
	Name uint64 // see NameOf
}

var nameSeed = maphash.MakeSeed()

// NameOf stands for a message-id and a session in this process. Those of another message of a
// million are the same by chance in one of 10¹³ cases.
func NameOf(messageID, sessionID string) uint64 {
	return maphash.Comparable(nameSeed, [2]string{messageID, sessionID})
}

// A Backlog is what waited on a work queue when it was read once, by the end of its life. It is for
// many times to live: each slot needs some messages from all along a window, and these windows
// overlap. A message in it may be gone since; one that it lacks was gone when it was read.
// One goroutine uses it. The zero Backlog is empty.
type Backlog struct {
	from, until time.Time           // it has what was enqueued from from to before until
	bySecond    map[int64][]Waiting // by the second in which their lives end
	waiting     int                 // in all seconds
	reads       []read              // ascending
	most        int                 // instead of maxWaiting; 0: that
}

// A read is how far the backlog went at an instant.
type read struct{ until, at time.Time }

// Extend has the backlog cover a window, what was enqueued from from to before need, which must be
// SettledAge ago. It reads only what the backlog lacks, and then on to most, for maxAhead pages.
// Several windows come in the order of time, then their messages are taken. lifeOf returns the
// life of a message; 0: it is not kept. If the backlog is full, or sequence numbers are not in
// order, it covers less.
func (b *Backlog) Extend(ctx context.Context, v *View, from, need, most time.Time, lifeOf func(*link.Message) time.Duration) error {
	if b.waiting > 0 && from.Before(b.from) && !need.Before(b.from) {
		if err := b.extendBack(ctx, v, from, lifeOf); err != nil {
			return err
		}
	}
	if !b.reaches(from) {
		b.startAt(from)
	}
	start, reached, ahead, isOver := b.until, b.until, 0, false
	if v.Unordered || !start.Before(need) {
		return nil
	}
	err := v.Read(ctx, start, most.Add(-1), func(page []*link.Message) (more bool) {
		reached = duration.Later(reached, b.addAll(page, start, most, lifeOf))
		if !reached.Before(need) {
			ahead++
		}
		isOver = b.isFull() || ahead > maxAhead
		return !isOver && !v.Unordered
	})
	if v.Unordered {
		b.startAt(from)
		return nil
	}
	if b.until.IsZero() { // the queue was recreated, and the caller has reset the backlog
		b.from = start
	}
	b.until = most
	if err != nil || isOver {
		b.until = reached // more may have been enqueued in the same millisecond: it is read again
	}
	return err
}

// extendBack has the backlog begin earlier. If it is full then, it starts over.
func (b *Backlog) extendBack(ctx context.Context, v *View, from time.Time, lifeOf func(*link.Message) time.Duration) error {
	until := b.from
	b.reads = nil
	err := v.Read(ctx, from, until.Add(-1), func(page []*link.Message) (more bool) {
		b.addAll(page, from, until, lifeOf)
		return !b.isFull() && !v.Unordered
	})
	if err != nil || b.isFull() || !b.from.Equal(until) {
		b.startAt(from)
		return err
	}
	b.from = from
	return nil
}

// addAll adds messages that were enqueued in a window, until b is full. It returns the stamp of the
// last one that it has looked at.
func (b *Backlog) addAll(page []*link.Message, from, until time.Time, lifeOf func(*link.Message) time.Duration) (reached time.Time) {
	for _, m := range page {
		life := lifeOf(m)
		if life <= 0 || Pending(m) || m.EnqueuedTime.Before(from) || !m.EnqueuedTime.Before(until) {
			continue
		}
		reached = m.EnqueuedTime
		if b.isFull() {
			break
		}
		b.add(Waiting{IdentityOf(m), life, NameOf(m.MessageID, m.SessionID)})
	}
	return reached
}

// Note says that all that b covers was read before an instant.
func (b *Backlog) Note(at time.Time) {
	if len(b.reads) == maxReads {
		b.reads = slices.Delete(b.reads, 0, 1)
	}
	b.reads = append(b.reads, read{b.until, at})
}

// CoveredBefore is Covered at an earlier instant. A message of that time that b lacks was gone by
// then.
func (b *Backlog) CoveredBefore(from, at time.Time) (until time.Time) {
	for _, r := range slices.Backward(b.reads) {
		if !r.at.After(at) && b.reaches(from) && from.Before(r.until) {
			return r.until
		}
	}
	return from
}

// Covered returns until when the backlog has what was enqueued from an instant on: that instant, if
// it has nothing.
func (b *Backlog) Covered(from time.Time) (until time.Time) {
	if b.reaches(from) && from.Before(b.until) {
		return b.until
	}
	return from
}

// reaches reports whether the backlog goes on to what was enqueued from an instant on. Messages
// that lie in between are read, too, unless nothing is lost without them.
func (b *Backlog) reaches(from time.Time) bool {
	return !from.Before(b.from) && (b.waiting > 0 || !from.After(b.until))
}

// Take calls take with the messages whose life ends after from and at until at the latest, perhaps
// twice, and removes those that it accepts. If the backlog is still full then, it has what nobody
// takes, and starts over.
func (b *Backlog) Take(from, until time.Time, take func(Waiting) bool) {
	for _, second := range slices.Sorted(maps.Keys(b.bySecond)) {
		if second < from.Unix() || second > until.Unix() {
			continue
		}
		all := b.bySecond[second]
		left := slices.DeleteFunc(all, func(w Waiting) bool {
			end := w.EnqueuedTime().Add(w.Life)
			return end.After(from) && !end.After(until) && take(w)
		})
		b.waiting -= len(all) - len(left)
		b.bySecond[second] = left
		if len(left) == 0 {
			delete(b.bySecond, second)
		}
	}
	if b.isFull() {
		b.Reset()
	}
}

// Reset forgets everything.
func (b *Backlog) Reset() { b.startAt(time.Time{}) }

func (b *Backlog) startAt(from time.Time) { *b = Backlog{from: from, until: from, most: b.most} }

func (b *Backlog) isFull() bool { return b.waiting >= cmp.Or(b.most, maxWaiting) }

func (b *Backlog) add(w Waiting) {
	if b.bySecond == nil {
		b.bySecond = map[int64][]Waiting{}
	}
	second := w.EnqueuedTime().Add(w.Life).Unix()
	b.bySecond[second] = append(b.bySecond[second], w)
	b.waiting++
}
