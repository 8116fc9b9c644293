// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"sort"

	"overdue/internal/amqp"
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
	in      uint32 // delivery-id of upstream
	link    *link  // nil: it is settled
	note    Note
	outcome outcome // stated by the client
}

type outcome uint8

const (
	outcomeNone outcome = iota // none, or one that gives the message back or sets it aside
	outcomeAccepted
	outcomeRejected
)

// observeLocked shows one frame of a delivery from upstream to the observer.
func (h *half) observeLocked(l *link, t *amqp.Transfer, payload []byte, first bool) {
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
		h.observed.push(observed{in: l.came.id, link: l, note: o.note})
	}
}

// openObservedLocked asks Config.Observe for an observer of a client's receiving link.
func (h *half) openObservedLocked(l *link, w Link) {
	c := h.s.c
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

// statedLocked records the client's outcome of deliveries. A delivery that it settles at once
// gets no confirmation.
func (h *half) statedLocked(d *amqp.Disposition, in span) {
	if h.observed.len() == 0 {
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
	h.observed.each(in, func(o *observed) {
		o.outcome = stated
		if stated != outcomeNone {
			o.link.observed.observer.Settling(o.note)
		}
		if d.Settled {
			o.link = nil
		}
	})
}

// confirmedLocked handles a disposition from upstream, and reports deliveries whose outcome is
// the one that the client stated. A rejected with an error means that upstream did not apply it.
func (h *half) confirmedLocked(d *amqp.Disposition) {
	if h.observed.len() == 0 || !d.Settled {
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
	h.observed.each(span{d.First, d.Last}, func(o *observed) {
		l := o.link
		o.link = nil
		if o.outcome == done && done != outcomeNone {
			l.observed.observer.Settled(o.note)
		}
	})
}

// unobserveLocked drops the deliveries of a link.
func (h *half) unobserveLocked(l *link) {
	for i := range h.observed.list {
		if o := &h.observed.list[i]; o.link == l {
			o.link = nil
		}
	}
	h.observed.trim()
}

// observedList holds deliveries in the order of their arrival.
type observedList struct {
	list []observed
	head int
}

func (q *observedList) len() int { return len(q.list) - q.head }

func (q *observedList) push(o observed) {
	if q.len() >= maxObserved {
		q.head += maxObserved / 2
	}
	if q.head > 64 && q.head > len(q.list)/2 {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, o)
}

// each calls f with the unsettled deliveries of r.
func (q *observedList) each(r span, f func(*observed)) {
	waiting := q.list[q.head:]
	first := sort.Search(len(waiting), func(i int) bool { return !before(waiting[i].in, r.first) })
	for i := first; i < len(waiting) && !before(r.last, waiting[i].in); i++ {
		if o := &waiting[i]; o.link != nil {
			f(o)
		}
	}
	q.trim()
}

// trim drops settled deliveries from the front.
func (q *observedList) trim() {
	for q.head < len(q.list) && q.list[q.head].link == nil {
		q.head++
	}
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
		if cap(q.list) > 256 {
			q.list = nil
		}
	}
}
