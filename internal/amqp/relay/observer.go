// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// An Observer sees how a client settles the deliveries of one link. It changes nothing and delays
// nothing: its methods run with the connection's lock held, and must neither block nor call back.
type Observer interface {
	// Delivered gets the payload of a delivery's first frame, valid during the call: the sections
	// before the body, unless they are very long. It returns a Note that the relay keeps until
	// the delivery is settled, or false to ignore the delivery.
	Delivered(payload []byte) (Note, bool)

	// Settling is called when the client has accepted or rejected a delivery, before upstream gets
	// to know.
	Settling(Note)

	// Settled is called when a delivery is off its queue. Either it was sent settled and has
	// arrived completely, or the client has accepted or rejected it and upstream has confirmed
	// that outcome. It is not called for settlements that need no confirmation, in a transaction,
	// through a management node, or after the link is gone.
	Settled(Note)
}

// A Note identifies a delivery to its Observer.
type Note [6]uint64

// maxObserved bounds the deliveries of a session that are observed at once. The latest stay.
const maxObserved = 4096

// observation is the delivery that an observed link is receiving.
type observation struct {
	observer Observer
	note     Note
	noted    bool
	settled  bool
}

// An observed delivery has reached the client, and is not settled.
type observed struct {
	link    *link
	note    Note
	outcome outcome // stated by the client
}

type outcome uint8

const (
	outcomeNone outcome = iota // none, or one that gives the message back or sets it aside
	outcomeAccepted
	outcomeRejected
)

// observedList holds the deliveries of upstream that are observed, by their ids. The connection's
// mutex guards it.
type observedList struct{ transport.Unsettled[observed] }

// observe shows one frame of a delivery from upstream to the observer.
func (q *observedList) observe(l *link, t *amqp.Transfer, payload []byte, first bool) {
	o := l.observed
	if first {
		o.settled = false
		o.note, o.noted = o.observer.Delivered(payload)
	}
	o.settled = o.settled || t.Settled
	switch {
	case !o.noted, t.More, t.Aborted:
	case o.settled:
		o.observer.Settled(o.note)
	default:
		q.push(l.came.id, observed{link: l, note: o.note})
	}
}

// openObservedLocked asks Config.Observe for an observer of a client's receiving link.
func (l *link) openObservedLocked(w Link) {
	c := l.s.c
	if c.cfg.Observe == nil {
		return
	}
	c.mu.Unlock()
	o := c.cfg.Observe(w)
	c.mu.Lock()
	if o != nil {
		l.observed = &observation{observer: o}
	}
}

// stated records the client's outcome of deliveries. A delivery that it settles at once
// gets no confirmation.
func (q *observedList) stated(d *amqp.Disposition, in span) {
	if q.Len() == 0 {
		return
	}
	var stated outcome
	switch d.State.(type) {
	case *amqp.Received:
		return // no outcome yet
	case amqp.Accepted:
		stated = outcomeAccepted
	case *amqp.Rejected:
		stated = outcomeRejected
	}
	q.Each(in.first, in.last, func(o *observed) (settled bool) {
		o.outcome = stated
		if stated != outcomeNone {
			o.link.observed.observer.Settling(o.note)
		}
		return d.Settled
	})
}

// confirmed handles a disposition from upstream, and reports deliveries whose outcome is
// the one that the client stated. A rejected with an error means that upstream did not apply it.
func (q *observedList) confirmed(d *amqp.Disposition) {
	if q.Len() == 0 || !d.Settled {
		return
	}
	var done outcome
	switch st := d.State.(type) {
	case amqp.Accepted:
		done = outcomeAccepted
	case *amqp.Rejected:
		if st.Error == nil {
			done = outcomeRejected
		}
	}
	q.Each(d.First, d.Last, func(o *observed) (settled bool) {
		if o.outcome == done && done != outcomeNone {
			o.link.observed.observer.Settled(o.note)
		}
		return true
	})
}

// push adds a delivery, in place of the older half of too many.
func (q *observedList) push(id uint32, o observed) {
	if n := 0; q.Len() >= maxObserved {
		q.All(func(*observed) bool { n++; return n <= maxObserved/2 })
	}
	q.Add(id, o)
}
