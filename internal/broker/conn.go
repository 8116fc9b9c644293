// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
)

// handler is the Broker as package server sees it; apart, so that its methods are
// not the Broker's.
type handler struct{ b *Broker }

// Connect lets everybody in, for the time being: see access.
func (h handler) Connect(peer *server.Conn) (server.ConnHandler, *amqp.Error) {
	c := &conn{b: h.b, peer: peer, ns: h.b.Default(), replies: replies{}}
	c.txns.now = func() time.Time { return c.ns.Now() }
	c.txns.disk = c.b.disk
	c.access.begin(h.b, peer)
	return c, nil
}

// A conn is one connection of a client. Its fields belong to the read loop.
type conn struct {
	b       *Broker
	peer    *server.Conn
	late    late       // what a fault delays
	ns      *Namespace // constant once a link leads into it, see settle
	access  access
	replies replies
	txns    transactions
	cbs     struct{ sink, source bool } // the one pair of $cbs links that a connection has
	sent    atomic.Uint32               // responses so far, to tag them
}

// Closed ends what outlives the links, which have been detached before.
func (c *conn) Closed(error) {
	c.access.end()
	c.late.close()
}

// AttachSink opens a link on which the client sends.
func (c *conn) AttachSink(l *server.SinkLink) (server.Sink, *amqp.Error) {
	sink, err := c.attachSink(l)
	if sink != nil || err != nil { // otherwise a fault delays the answer
		c.noteAttach(l.Attach(), err)
	}
	return sink, c.tracked(err, l.Attach())
}

// tracked is how a link is refused.
func (c *conn) tracked(err *amqp.Error, a *amqp.Attach) *amqp.Error {
	if err == nil {
		return nil
	}
	return c.ns.entities.tracked(err, parseAddress(addressOf(a)).Entity())
}

func (c *conn) attachSink(l *server.SinkLink) (server.Sink, *amqp.Error) {
	class, err := c.admit(l.Attach())
	if err != nil {
		return nil, err
	}
	if class.Kind == rights.Coordinator {
		return c.attachCoordinator(l)
	}
	l.Reply.Target = establishedTarget(l.Attach().Target)
	// The Python SDK asks for rcv-settle-mode second and never settles: it waits for us to.
	l.Reply.SettleFirst = true
	a := class.Address
	switch {
	case a.Node == address.CBS:
		return c.attachCBSRequests(l)
	case a.Node == address.Management:
		if _, err := c.ns.entities.lookup(a.Entity()); err != nil {
			return nil, err
		}
		l.Reply.MaxMessageSize = maxMaxMessageSize // what is too large in a request, its answer says
		return newRequests(c, l, a, managementCredit, c.guarded(a, management{c.ns, a, &c.txns}.answer)), nil
	case isDead(a):
		if _, err := c.ns.entities.lookup(a.Entity()); err != nil {
			return nil, err
		}
		return nil, amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to send to a dead-letter queue.")
	}
	if f := c.ns.faults.hit(OnAttach, a.Entity(), ""); f != nil {
		return sufferAttach(c, f, l, l.Accept, func() (server.Sink, *amqp.Error) { return c.attachSender(l, &class) })
	}
	return c.attachSender(l, &class)
}

// attachSender opens a link on which the client sends to an entity.
func (c *conn) attachSender(l *server.SinkLink, class *rights.Class) (server.Sink, *amqp.Error) {
	via, e, err := c.openTarget(class)
	if err != nil {
		return nil, err
	}
	if !e.links.add(l) {
		return nil, notFound(c.ns.host.url(class.Address.Entity()))
	}
	l.Reply.MaxMessageSize = e.MaxMessageSize()
	if batch := e.maxBatchSize(); batch < l.Reply.MaxMessageSize {
		l.Reply.Properties = batchProperties(batch)
	}
	c.txns.bind(l.Session(), via)
	return &sender{conn: c, link: l, via: via, entity: e}, nil
}

// AttachSource opens a link on which the client receives.
func (c *conn) AttachSource(l *server.SourceLink) (server.Source, *amqp.Error) {
	source, err := c.attachSource(l)
	if source != nil || err != nil { // otherwise it waits for a session, or a fault delays the answer
		c.noteAttach(l.Attach(), err)
	}
	return source, c.tracked(err, l.Attach())
}

func (c *conn) attachSource(l *server.SourceLink) (server.Source, *amqp.Error) {
	class, err := c.admit(l.Attach())
	if err != nil {
		return nil, err
	}
	source := l.Attach().Source
	if err := refuseSource(source); err != nil {
		return nil, err
	}
	l.Reply.Source = establishedSource(source)
	a := class.Address
	switch a.Node {
	case address.CBS:
		return c.attachCBSReplies(l)
	case address.Management:
		if _, err := c.ns.entities.lookup(a.Entity()); err != nil {
			return nil, err
		}
		return newResponder(c, l, a), nil
	}
	if f := c.ns.faults.hit(OnAttach, a.Entity(), ""); f != nil {
		return sufferAttach(c, f, l, l.Accept, func() (server.Source, *amqp.Error) { return c.attachReceiver(l, a) })
	}
	return c.attachReceiver(l, a)
}

// attachReceiver opens a link on which the client receives from an entity.
func (c *conn) attachReceiver(l *server.SourceLink, a address.Address) (server.Source, *amqp.Error) {
	e, err := c.ns.entities.open(a.Entity())
	if err != nil {
		return nil, err
	}
	if at := l.Attach(); at.SndSettleMode == amqp.SndUnsettled && at.RcvSettleMode == amqp.RcvFirst {
		l.Reply.RcvSettleMode = amqp.RcvSecond // as the service answers it
	}
	if err := e.join(l, a); err != nil {
		return nil, err
	}
	source, err := c.receive(l, e, a)
	if err != nil {
		e.links.remove(l)
	}
	return source, err
}

// receive is attachReceiver, once the link is one of the entity's.
func (c *conn) receive(l *server.SourceLink, e *Entity, a address.Address) (server.Source, *amqp.Error) {
	if c.txns.rootFor(l.Session(), e) != e.root() {
		return nil, errSpans()
	}
	sessionful := e.RequiresSession() && !isDead(a) // the dead are in no session
	switch filter, wantsSession := amqp.MapLookup(l.Attach().Source.Filter, sessionFilter); {
	case sessionful && wantsSession:
		return c.attachSession(l, e, filter.Raw())
	case sessionful:
		return nil, errSessionRequired()
	case wantsSession:
		return nil, errSessionNotPossible(a)
	}
	q := e.node(a)
	return c.newReceiver(l, e, q, nil, q.NewConsumer(receiveMode(l.Attach()))), nil
}
