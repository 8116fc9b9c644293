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
		return refused(a.err)
	case count <= 0 || count > math.MaxInt32:
		return refused(amqp.Errorf(condOutOfRange, "The argument 'message-count' has to be positive."))
	case ofSession && !q.Config().RequiresSession:
		return failure(queue.ErrNotSessionful)
	}
	// Without a session the messages of all are shown, also over the receiver of one: the Go SDK does
	// not say which it means, and every other does.
	buffer := peekBuffers.Get().(*peekBuffer)
	show := func(from int64, most int) (views []queue.View, err error) {
		if ofSession {
			views, err = q.Sessions().Peek(buffer.views[:0], session, from, most)
		} else {
			views, err = q.Peek(buffer.views[:0], from, most)
		}
		buffer.views = views
		return views, err
	}
	views, err := shown(m.ns.b.cfg.Quirks, m.ns.Now(), show, from, int(min(count, maxPeek)))
	if err != nil {
		return failure(err)
	}
	page := buffer.page.Begin(m.ns.b.cfg.MaxMessageSize)
	for i := range views {
		v := &views[i]
		if !omitBody && !page.Fits(len(v.Body)) {
			break
		}
		if err := page.Add(v, message.Overlay{Peeked: true, OmitBody: omitBody}, nil); err != nil {
			return failure(err)
		}
	}
	clear(buffer.views)
	res := pageOf(page)
	res.free = buffer.free
	return res
}

// A peekBuffer is the memory of one peek: monitors read thousands of pages a second.
type peekBuffer struct {
	views []queue.View
	page  message.Page
}

var peekBuffers = sync.Pool{New: func() any { return new(peekBuffer) }}

// maxPeekBuffer bounds the memory of a page, and of a response, that is kept for the next one.
const maxPeekBuffer = 256 << 10

// free keeps b for the next peek.
func (b *peekBuffer) free() {
	if b.page.Cap() <= maxPeekBuffer {
		peekBuffers.Put(b)
	}
}

// pageOf returns the response with a page.
func pageOf(p *message.Page) response {
	if body := p.End(); body != nil {
		return ok(body)
	}
	return noContent()
}
