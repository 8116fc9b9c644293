// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"math"
	"sync"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// maxPeek is the most messages that one peek returns.
const maxPeek = 250

// peek shows what exists from a sequence number upwards and changes nothing. A
// page ends early where it would be larger than the largest message.
func (m management) peek(_ *Entity, q *queue.Queue, a *arguments) response {
	from := a.integer("from-sequence-number", true)
	count := a.integer("message-count", true)
	omitBody := a.bool("omit-message-body")
	session, ofSession := a.session(false)
	switch {
	case a.err != nil:
		return invalid(a.err)
	case count <= 0 || count > math.MaxInt32:
		return response{status: statusBadRequest, condition: condOutOfRange,
			description: "The argument 'message-count' has to be positive."}
	case ofSession && !q.Config().RequiresSession:
		return failure(queue.ErrNotSessionful)
	}
	// Without a session the messages of all are shown, also over the receiver of one: the Go SDK does
	// not say which it means, and every other does.
	buffer := peekBuffers.Get().(*peekBuffer)
	show := func(from int64, most int) []queue.View {
		if buffer.views = buffer.views[:0]; ofSession {
			buffer.views = q.PeekSession(buffer.views, session, from, most)
		} else {
			buffer.views = q.Peek(buffer.views, from, most)
		}
		return buffer.views
	}
	views := m.ns.shown(show, from, int(min(count, maxPeek)))
	page := buffer.page.begin(m.ns.b.cfg.MaxMessageSize)
	for i := range views {
		v := &views[i]
		if !omitBody && !page.fits(len(v.Body)) {
			break
		}
		if err := page.add(v, message.Overlay{Peeked: true, OmitBody: omitBody}, nil); err != nil {
			return failure(err)
		}
	}
	clear(buffer.views)
	res := page.response()
	res.free = buffer.free
	return res
}

// A peekBuffer is the memory of one peek: monitors read thousands of pages a second.
type peekBuffer struct {
	views []queue.View
	page  page
}

var peekBuffers = sync.Pool{New: func() any { return new(peekBuffer) }}

// maxPeekBuffer bounds the bytes of a page that are kept for the next peek.
const maxPeekBuffer = 256 << 10

// free keeps b for the next peek.
func (b *peekBuffer) free() {
	if cap(b.page.out) <= maxPeekBuffer {
		peekBuffers.Put(b)
	}
}

// A page is a list of encoded messages in a response:
// {"messages": [{"message": binary, "lock-token": uuid}, …]}.
type page struct {
	out     []byte
	outer   int // start of the map
	list    int // start of the list
	count   int
	limit   int // bytes, about
	scratch []byte
}

// begin begins a page, in the memory of the one before.
func (p *page) begin(limit uint64) *page {
	p.count, p.limit = 0, int(limit)
	p.out, p.outer = amqp.BeginMap(p.out[:0])
	p.out = amqp.AppendString(p.out, "messages")
	p.out, p.list = amqp.BeginList(p.out)
	return p
}

// perMessage is what a message on a page has beyond its own bytes, about.
const perMessage = 200

// fits reports whether a message of size bytes has room. The first always has:
// a client that gets nothing asks again for ever.
func (p *page) fits(size int) bool {
	return p.count == 0 || len(p.out)+size+perMessage <= p.limit
}

// add appends a message; lock is its token, nil for none.
func (p *page) add(v *queue.View, o message.Overlay, lock *queue.LockToken) error {
	var err error
	if p.scratch, err = message.Append(p.scratch[:0], v, o); err != nil {
		return err
	}
	var start int
	p.out, start = amqp.BeginMap(p.out)
	p.out = amqp.AppendString(p.out, "message")
	p.out = amqp.AppendBinary(p.out, p.scratch)
	pairs := 1
	if lock != nil {
		p.out = amqp.AppendString(p.out, "lock-token")
		p.out = amqp.AppendUUID(p.out, amqp.UUID(*lock))
		pairs++
	}
	p.out = amqp.EndMap(p.out, start, pairs)
	p.count++
	return nil
}

// response closes the page and returns it.
func (p *page) response() response {
	if p.count == 0 {
		return noContent()
	}
	p.out = amqp.EndMap(amqp.EndList(p.out, p.list, p.count), p.outer, 1)
	return ok(p.out)
}
