// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
)

const (
	// maxSamples bounds the messages that Quiet watches, and quietPage is how many messages from the
	// beginning of the queue it reads for them.
	maxSamples = 16
	quietPage  = 32
	// minSamples is how many of them must have stayed to show that nobody received.
	minSamples = 2
	// sampleLife is the least time until its expiry that a message has to become a sample.
	// expiryMargin before it, its absence has no meaning any more.
	sampleLife   = 500 * time.Millisecond
	expiryMargin = 100 * time.Millisecond
)

// Quiet tells since when nobody receives from a queue. A consumer takes the oldest messages first. So
// while the oldest ones stay as they are, and none of them is locked, nobody settles any message that
// waits. One that is gone all the same has expired.
//
// It does not notice a consumer that holds messages although older ones are available.
type Quiet struct {
	samples []sample
	since   time.Time // by our clock: all samples stayed from one call of Observe to the next
}

type sample struct {
	Identity
	deliveries uint32
	expiry     time.Time // by the clock of the broker; zero: never
}

// An Observation is what is known when Quiet reads the beginning of the queue.
type Observation struct {
	Now  time.Time                         // the clock of the broker has not reached it after the read
	Life func(*link.Message) time.Duration // the time to live of a message; 0: none

	// Nudges are the last ones, by the clock of the broker.
	Nudges []Nudge
}

// A Nudge is what a receive with one credit has shown.
type Nudge struct {
	Ended time.Time
	First int64 // the sequence number of the first message that was available; 0: none
}

// Observe reads the beginning of the queue, then calls observation. If that knows nothing, the queue is
// not quiet: without a clock, it cannot know whether a sample has expired.
func (q *Quiet) Observe(ctx context.Context, v *View, observation func() (o Observation, known bool)) error {
	began := time.Now()
	page, err := v.Peek(ctx, 0, quietPage)
	if err != nil {
		return err
	}
	if o, known := observation(); known {
		q.see(page, began, &o)
	} else {
		*q = Quiet{}
	}
	return nil
}

// see takes the beginning of the queue, which was read at the instant began of our clock or later.
func (q *Quiet) see(page []*link.Message, began time.Time, o *Observation) {
	if o.isHeld(page) || !q.stayed(page, o.Now) {
		q.since = began
	}
	q.sample(page, o)
}

// nudgeHolds is for how long what a nudge has shown counts.
const nudgeHolds = 200 * time.Millisecond

// isHeld reports whether a consumer has locked the oldest message, or may have. A peek does not show
// that, but none of the last nudges got it.
func (o *Observation) isHeld(page []*link.Message) bool {
	return !slices.ContainsFunc(o.Nudges, func(n Nudge) bool {
		if o.Now.Sub(n.Ended) > nudgeHolds {
			return false
		}
		i := slices.IndexFunc(page, func(m *link.Message) bool {
			expiry := o.expiry(m)
			return m.State != link.Deferred && !Pending(m) && (expiry.IsZero() || expiry.After(n.Ended))
		})
		return i >= 0 && page[i].SequenceNumber == n.First
	})
}

// expiry returns when m expires; zero: never.
func (o *Observation) expiry(m *link.Message) time.Time {
	if life := o.Life(m); life > 0 {
		return m.EnqueuedTime.Add(life)
	}
	return time.Time{}
}

// stayed reports whether the samples that have not expired are on the page as they were.
func (q *Quiet) stayed(page []*link.Message, now time.Time) bool {
	there := map[Identity]*link.Message{}
	for _, m := range page {
		there[IdentityOf(m)] = m
	}
	stayed := 0
	for _, s := range q.samples {
		switch m := there[s.Identity]; {
		case m != nil && m.DeliveryCount == s.deliveries && m.State != link.Deferred:
			stayed++
		case m != nil || s.expiry.IsZero() || now.Before(s.expiry.Add(-expiryMargin)):
			return false
		}
	}
	return stayed >= minSamples
}

// sample takes new samples from the page.
func (q *Quiet) sample(page []*link.Message, o *Observation) {
	q.samples = q.samples[:0]
	for _, m := range page {
		s := sample{IdentityOf(m), m.DeliveryCount, o.expiry(m)}
		if m.State == link.Deferred || Pending(m) || !s.expiry.IsZero() && s.expiry.Before(o.Now.Add(sampleLife)) {
			continue
		}
		if q.samples = append(q.samples, s); len(q.samples) == maxSamples {
			return
		}
	}
}

// steadyAfter is how long a queue must be quiet for a new read of it to be worth its cost.
const steadyAfter = time.Second

// Steady returns since when the queue is quiet, if it has been so for a while.
func (q *Quiet) Steady() (since time.Time, steady bool) {
	return q.since, len(q.samples) > 0 && !q.since.IsZero() && time.Since(q.since) >= steadyAfter
}

// From reports whether nobody has settled a message between the instant t of our clock and the last
// call of Observe.
func (q *Quiet) From(t time.Time) bool { return !q.since.IsZero() && !q.since.After(t) }
