// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"sort"

	"overdue/internal/amqp"
)

// An Observer learns how a client settles what it receives over one link. It changes nothing and
// holds nothing up: its methods are called with the connection's lock held, and must neither block
// nor call back.
type Observer interface {
	// Delivered is shown what the first frame of a delivery carries, valid during the call: the
	// sections before the body, unless they are very long. It returns what to remember of the
	// delivery until it is settled, or false to hear no more of it.
	Delivered(payload []byte) (Note, bool)

	// Settled is told that a delivery is off its queue: it was sent settled and has come
	// completely, or the client has accepted or rejected it and upstream has confirmed just that.
	// What a client settles without waiting for confirmation, what it settles in a transaction,
	// through a management node, or after the link is gone, is not told.
	Settled(Note)
}

// A Note is what an Observer has to know of a delivery when it is settled.
type Note [4]uint64

// maxObserved bounds the deliveries of a session that are observed at once. Of more, the latest
// are.
const maxObserved = 4096

// observation is what an observed link is about to deliver.
type observation struct {
	observer Observer
	note     Note
	noted    bool
	settled  bool
}

// An observed delivery is with the client, which has not settled it.
type observed struct {
	in      uint32 // delivery-id of upstream
	link    *link  // nil: it is settled
	note    Note
	outcome outcome // that the client has stated
}

type outcome uint8

const (
	outcomeNone outcome = iota // none, or one that gives the message back or sets it aside
	outcomeAccepted
	outcomeRejected
)

// observeLocked looks at one frame of a delivery from upstream.
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

// openObservedLocked asks whether anybody wants to observe a link that a client receives over.
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

// statedLocked notes what the client says of deliveries. What it settles at once nobody confirms.
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
		if d.Settled {
			o.link = nil
		}
	})
}

// confirmedLocked notes what upstream says of its deliveries, and tells of those that it has done
// with as the client wanted. A rejected with an error says that it has not.
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

// unobserveLocked forgets the deliveries of a link.
func (h *half) unobserveLocked(l *link) {
	for i := range h.observed.list {
		if o := &h.observed.list[i]; o.link == l {
			o.link = nil
		}
	}
	h.observed.trim()
}

// observedList is deliveries in the order in which they came.
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

// each calls f with those of r that are not settled.
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

// trim forgets what is settled, from the front.
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
