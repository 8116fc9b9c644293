// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/amqpserver"
	"overdue/internal/queue"
)

// sessionFilter is the filter of a source that wants a session.
const sessionFilter = "com.microsoft:session-filter"

// handler is the Broker as amqpserver sees it; apart, so that its methods are
// not the Broker's.
type handler struct{ b *Broker }

// Connect lets everybody in.
func (h handler) Connect(*amqpserver.Conn) (amqpserver.ConnHandler, *amqp.Error) {
	return &conn{b: h.b}, nil
}

// A conn is one connection of a client. Its fields belong to the read loop.
type conn struct {
	b       *Broker
	replies replies
	cbs     struct{ sink, source bool } // the one pair of $cbs links that a connection has
}

// Closed has nothing to do: every link has been detached before.
func (c *conn) Closed(error) {}

// AttachSink opens a link on which the client sends.
func (c *conn) AttachSink(l *amqpserver.SinkLink) (amqpserver.Sink, *amqp.Error) {
	target := l.Attach().Target
	if target == nil {
		return nil, amqp.Errorf(amqp.ErrCondNotImplemented, "Transactions are not supported.")
	}
	// The Python SDK asks for rcv-settle-mode second and never settles: it waits for us to.
	l.Reply.SettleFirst = true
	a := parseAddress(target.Address)
	switch {
	case a.cbs:
		return c.attachCBSRequests(l)
	case a.management:
		if _, err := c.b.look(a.name); err != nil {
			return nil, err
		}
		return newRequests(c, l, a, management{c.b, a}.answer), nil
	case a.deadLetter:
		if _, err := c.b.look(a.name); err != nil {
			return nil, err
		}
		return nil, amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to send to a dead-letter queue.")
	}
	e, err := c.b.open(a.name)
	if err != nil {
		return nil, err
	}
	return &sender{link: l, queue: e.queue}, nil
}

// AttachSource opens a link on which the client receives.
func (c *conn) AttachSource(l *amqpserver.SourceLink) (amqpserver.Source, *amqp.Error) {
	source := l.Attach().Source
	if source == nil {
		return nil, amqp.Errorf(amqp.ErrCondInvalidField, "The link has no source.")
	}
	// A client holds what it receives to the size that we state. A message as large as the
	// sender's link allows grows by our annotations, and a page of a peek by its envelope.
	l.Reply.MaxMessageSize = 0 // no limit
	a := parseAddress(source.Address)
	switch {
	case a.cbs:
		return c.attachCBSReplies(l)
	case a.management:
		if _, err := c.b.look(a.name); err != nil {
			return nil, err
		}
		return newResponder(c, l, a), nil
	}
	e, err := c.b.open(a.name)
	if err != nil {
		return nil, err
	}
	if _, wantsSession := amqp.MapLookup(source.Filter, sessionFilter); wantsSession {
		return nil, amqp.Errorf(amqp.ErrCondNotAllowed,
			"A sessionful message receiver cannot be created on an entity that does not require sessions.")
	}
	return c.b.receive(l, e.node(a.deadLetter)), nil
}

// receive starts a receiver on q.
func (b *Broker) receive(l *amqpserver.SourceLink, q *queue.Queue) *receiver {
	r := &receiver{
		link:     l,
		queue:    q,
		consumer: q.NewConsumer(queue.PeekLock),
		delete:   l.Attach().SndSettleMode == amqp.SndSettled,
	}
	b.links.Go(r.pump)
	return r
}
