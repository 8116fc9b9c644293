// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"time"

	"overdue/internal/amqp"
)

type linkState uint8

const (
	linkAttaching linkState = iota // the handler has not answered
	linkAttached
	linkDetaching // our detach is sent, the peer's is awaited; its frames until then are dropped
	linkGone
)

// link is the common part of both kinds of link. The connection's mutex guards the fields that
// change.
type link struct {
	s      *Session
	attach *amqp.Attach
	key    linkKey
	handle uint32 // ours; noHandle until the attach is answered and after our detach
	number uint64 // rises with every link of the connection
	state  linkState
	used   time.Time     // see Config.LinkIdleTimeout; not kept without
	done   chan struct{} // made by the first Done

	sink   *SinkLink   // exactly one of the two is set
	source *SourceLink // the set one embeds this link
}

// Conn returns the connection of l.
func (l *link) Conn() *Conn { return l.s.c }

// Session returns the session of l.
func (l *link) Session() *Session { return l.s }

// Name returns the name that the peer gave the link.
func (l *link) Name() string { return l.attach.Name }

// Attach returns the peer's attach; it must not be modified.
func (l *link) Attach() *amqp.Attach { return l.attach }

// Done returns a channel that is closed when the link ends, even before its attach is answered.
func (l *link) Done() <-chan struct{} {
	l.s.c.mu.Lock()
	defer l.s.c.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.state >= linkDetaching {
			close(l.done)
		}
	}
	return l.done
}

// Detach closes the link with e, or without an error if e is nil. It may be called from any
// goroutine and does not wait; Detached follows soon. It has no effect on a link that has ended.
func (l *link) Detach(e *amqp.Error) {
	l.s.c.mu.Lock()
	defer l.s.c.mu.Unlock()
	l.detachLocked(e)
}

// Refuse refuses a link whose answer AttachSink or AttachSource has deferred, from any goroutine.
func (l *link) Refuse(e *amqp.Error) {
	l.s.c.mu.Lock()
	defer l.s.c.mu.Unlock()
	if l.state == linkAttaching {
		l.refuseLocked(e)
	}
}

func (l *link) detachLocked(e *amqp.Error) {
	switch l.state {
	case linkAttaching:
		l.refuseLocked(e)
	case linkAttached:
		l.s.flushLocked()
		l.s.c.wire.Put(l.s.out, &amqp.Detach{Handle: l.handle, Closed: true, Error: e})
		calls := l.overLocked(e)
		l.detachingLocked()
		l.s.c.laterLocked(calls...)
	}
}

// refuseLocked answers an attach by one without termini, and detach (part 2 section 6.3).
func (l *link) refuseLocked(e *amqp.Error) {
	l.putAttachLocked(true)
	if l.state == linkAttaching { // else the connection has ended
		l.s.c.wire.Put(l.s.out, &amqp.Detach{Handle: l.handle, Closed: true, Error: e})
		l.overLocked(e)
		l.detachingLocked()
	}
}

// detached stands for every link whose peer has yet to answer our detach: it only marks the handle
// as taken. It never changes.
var detached = &link{state: linkDetaching, handle: noHandle}

// detachingLocked follows our detach. It keeps nothing of the attach, since a peer may be refused
// again and again and never answer.
func (l *link) detachingLocked() {
	l.state = linkDetaching
	if s := l.s; s.links[l.attach.Handle] == l {
		s.links[l.attach.Handle] = detached
	}
}

// overLocked takes the link out of service and returns the call that ends its handler, if it has
// one.
func (l *link) overLocked(why *amqp.Error) []func() {
	if l.state == linkGone || l.state == linkDetaching {
		return nil
	}
	l.state = linkGone
	if l.done != nil {
		close(l.done)
	}
	s, c := l.s, l.s.c
	if c.links[l.key] == l {
		delete(c.links, l.key)
		if c.rules.conn > 0 && !l.reply().Resident {
			c.rules.since = time.Now()
		}
	}
	if l.handle != noHandle && int(l.handle) < len(s.handles) && s.handles[l.handle] == l {
		s.handles[l.handle] = nil
		l.handle = noHandle
	}
	s.ready.Broadcast()
	c.room.Broadcast()
	switch {
	case l.sink != nil:
		l.sink.dropLocked()
		if h := l.sink.handler; h != nil {
			return []func(){func() { h.Detached(why) }}
		}
	case l.source != nil:
		l.source.dropLocked()
		if h := l.source.handler; h != nil {
			return []func(){func() { h.Detached(why) }}
		}
	}
	return nil
}

// onDetach detaches the link at the peer's request, or completes Detach.
func (s *Session) onDetach(d *amqp.Detach) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.state != sessionOpen {
		return
	}
	l := s.links[d.Handle]
	if l == nil {
		s.endLocked(amqp.Errorf(amqp.ErrCondSessionUnattachedHandle, "Detach names handle %d, which is not attached.", d.Handle))
		return
	}
	switch l.state {
	case linkAttaching:
		l.refuseLocked(nil) // the peer waits for both answers
	case linkAttached:
		s.flushLocked() // before the peer drops the link
		handle := l.handle
		calls := l.overLocked(d.Error)
		l.state = linkGone
		// Closed is always true, since suspended links are not kept. The SDKs expect that too.
		c.wire.Put(s.out, &amqp.Detach{Handle: handle, Closed: true})
		c.tasks = append(c.tasks, calls...)
	}
	if s.links[d.Handle] != nil {
		delete(s.links, d.Handle)
		c.nlinks--
	}
	c.runTasksLocked()
}

// A SinkLink is the server's end of a link on which the peer sends.
type SinkLink struct {
	link
	Reply   Reply
	handler Sink

	deliveryCount uint32 // of the peer
	credit        uint32 // deliveries that the peer may still send
	unsettled     uint32 // deliveries that wait for Settle, or for the peer's settlement afterwards
	held          uint32 // see Hold
	dirty         bool   // in Session.sinks

	current *Delivery // the incomplete delivery
	partial []byte    // its payload so far, in the buffer of Conn.assembly
}

// Accept attaches a link whose answer AttachSink has deferred, from any goroutine. It reports false
// if the peer has gone meanwhile; then h is not used.
func (l *SinkLink) Accept(h Sink) bool {
	l.s.c.mu.Lock()
	defer l.s.c.mu.Unlock()
	return l.acceptLocked(h)
}

func (l *SinkLink) acceptLocked(h Sink) bool {
	if l.state != linkAttaching {
		return false
	}
	l.Reply.Credit = cmp.Or(l.Reply.Credit, defaultCredit)
	l.Reply.MaxMessageSize = min(l.Reply.MaxMessageSize, cmp.Or(l.attach.MaxMessageSize, noLimit))
	l.handler = h
	if !l.attachedLocked() {
		l.handler = nil
		return false
	}
	l.deliveryCount = l.attach.InitialDeliveryCount
	l.credit = l.Reply.Credit
	l.putFlowLocked()
	return true
}

// dropLocked drops unsettled and incomplete deliveries.
func (l *SinkLink) dropLocked() {
	l.dropPartialLocked()
	l.s.received.All(func(d **Delivery) bool { return (*d).link == l })
	l.s.settleSharedLocked()
	l.unsettled = 0
}

// A SourceLink is the server's end of a link on which the peer receives.
type SourceLink struct {
	link
	Reply   Reply
	handler Source

	deliveryCount uint32 // ours, as in the frames of the peer
	credit        uint32 // deliveries that may still be sent
	total         int64  // deliveries sent or given up since the beginning
	allowance     int64  // total plus credit at the last call of the source
	hasFlow       bool   // the peer has stated its credit
	drain         bool   // the peer drains and has not been answered
	drained       bool   // the source is empty; the answer waits for an incomplete delivery
	busy          bool   // a delivery has begun and not all its frames are queued
	posted        []*outgoing
	inPosting     bool // in Session.posting
}

// Credit returns how many deliveries the peer accepts now.
func (l *SourceLink) Credit() uint32 {
	l.s.c.mu.Lock()
	defer l.s.c.mu.Unlock()
	return l.credit
}

// Accept attaches a link whose answer AttachSource has deferred, from any goroutine. It reports
// false if the peer has gone meanwhile; then h is not used.
func (l *SourceLink) Accept(h Source) bool {
	l.s.c.mu.Lock()
	defer l.s.c.mu.Unlock()
	return l.acceptLocked(h)
}

func (l *SourceLink) acceptLocked(h Source) bool {
	if l.state != linkAttaching {
		return false
	}
	l.handler = h
	if !l.attachedLocked() {
		l.handler = nil
		return false
	}
	l.deliveryCount = l.Reply.InitialDeliveryCount
	if l.hasFlow { // the peer sent a flow before our attach
		l.s.c.laterLocked(func() {
			l.s.c.mu.Lock()
			defer l.s.c.mu.Unlock()
			if l.state == linkAttached {
				l.callFlowLocked()
			}
		})
	}
	l.s.ready.Broadcast()
	l.s.pumpLinkLocked(l)
	return true
}

// dropLocked drops unsettled and waiting deliveries.
func (l *SourceLink) dropLocked() {
	l.s.sent.All(func(at **Outgone) bool {
		o := *at
		o.settled = o.settled || o.link == l
		return o.settled
	})
	l.posted = nil
}
