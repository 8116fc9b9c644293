// SPDX-License-Identifier: Apache-2.0

package message

import (
	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// A Page is a list of encoded messages in a response:
// {"messages": [{"message": binary, "lock-token": uuid}, …]}.
type Page struct {
	out     []byte
	outer   int // start of the map
	list    int // start of the list
	count   int
	limit   int // bytes, about
	scratch []byte
}

// Begin begins a page, in the memory of the one before.
func (p *Page) Begin(limit uint64) *Page {
	p.count, p.limit = 0, int(limit)
	p.out, p.outer = amqp.BeginMap(p.out[:0])
	p.out = amqp.AppendString(p.out, "messages")
	p.out, p.list = amqp.BeginList(p.out)
	return p
}

// PerMessage is what a message on a page has beyond its own bytes, about.
const PerMessage = 200

// Fits reports whether a message of size bytes has room. The first always has:
// a client that gets nothing asks again for ever.
func (p *Page) Fits(size int) bool {
	return p.count == 0 || len(p.out)+size+PerMessage <= p.limit
}

// Add appends a message; lock is its token, nil for none.
func (p *Page) Add(v *queue.View, o Overlay, lock *queue.LockToken) error {
	var err error
	if p.scratch, err = Append(p.scratch[:0], v, o); err != nil {
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

// End returns the map, which is valid until the next Begin; nil: it has no messages.
func (p *Page) End() amqp.Raw {
	if p.count == 0 {
		return nil
	}
	return amqp.EndMap(amqp.EndList(p.out, p.list, p.count), p.outer, 1)
}

// Cap returns how many bytes of memory the page has.
func (p *Page) Cap() int { return cap(p.out) }
