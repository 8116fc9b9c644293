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
	linkDetaching // our detach is sent, the peer's is awaited; what it sends until then is dropped
	linkGone
)

// link is what both kinds of link have in common. The connection's mutex guards what changes.
type link struct {
	s      *Session
	attach *amqp.Attach
	key    linkKey
	handle uint32 // ours; noHandle until the attach is answered and after our detach
	state  linkState
	used   time.Time     // see Config.LinkIdleTimeout; not kept without
	done   chan struct{} // made by the first Done

	sink   *SinkLink   // one of the two is set
	source *SourceLink // it is the one that embeds this link
}

// Conn returns the connection of l.
func (l *link) Conn() *Conn { return l.s.c }

// Session returns the session of l.
func (l *link) Session() *Session { return l.s }

// Name returns the name that the peer gave the link.
func (l *link) Name() string { return l.attach.Name }

// Attach returns what the peer attached the link with; it must not be modified.
func (l *link) Attach() *amqp.Attach { return l.attach }

// Done returns a channel that is closed when the link is over, be it while its attach waits for an
// answer.
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
// goroutine and does not wait; Detached follows soon. It has no effect on a link that is gone.
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
		l.s.c.putLocked(l.s.out, &amqp.Detach{Handle: l.handle, Closed: true, Error: e})
		calls := l.overLocked(e)
		l.detachingLocked()
		l.s.c.laterLocked(calls...)
	}
}

// refuseLocked answers an attach by one without a terminus, and detach (part 2 section 6.3).
func (l *link) refuseLocked(e *amqp.Error) {
	l.putAttachLocked(true)
	if l.state == linkAttaching { // else the connection went under with it
		l.s.c.putLocked(l.s.out, &amqp.Detach{Handle: l.handle, Closed: true, Error: e})
		l.overLocked(e)
		l.detachingLocked()
	}
}

// detached stands for every link whose peer has yet to answer our detach: that its handle is taken
// is all that has to be known of it. It is never changed.
var detached = &link{state: linkDetaching, handle: noHandle}

// detachingLocked follows our detach. A peer that never answers it, such as one that is refused
// again and again, leaves no name and nothing else of the attach here.
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
		if c.rules.timer != nil && len(c.links) == 0 {
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

// onDetach detaches the link as the peer asks, or completes what Detach began.
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
		s.flushLocked() // while the peer still knows the link
		handle := l.handle
		calls := l.overLocked(d.Error)
		l.state = linkGone
		// A link that is merely suspended is not kept here, which closed says. The SDKs want it too.
		c.putLocked(s.out, &amqp.Detach{Handle: handle, Closed: true})
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
	unsettled     uint32 // deliveries that wait for Settle, or for the peer's settlement after it
	dirty         bool   // in Session.sinks

	current *Delivery // whose last frame has not come
	partial []byte    // what has come of it; taken from Conn.assembly and given back
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

// dropLocked forgets what is unsettled or unfinished.
func (l *SinkLink) dropLocked() {
	l.dropPartialLocked()
	l.s.received.all(func(d *Delivery) bool { return d.link == l })
	l.s.settleSharedLocked()
	l.unsettled = 0
}

// A SourceLink is the server's end of a link on which the peer receives.
type SourceLink struct {
	link
	Reply   Reply
	handler Source
	number  uint64 // rises with every source link of the connection

	deliveryCount uint32 // ours, as the peer reckons it
	credit        uint32 // deliveries that may still be sent
	total         int64  // deliveries sent or given up since the beginning
	allowance     int64  // total plus credit at the last call of the source
	hasFlow       bool   // the peer has stated its credit
	drain         bool   // the peer drains and has not been answered
	drained       bool   // the source has nothing more, the answer waits for what is under way
	busy          bool   // a delivery has begun and not all its frames are queued
	posted        []*outgoing
	inPosting     bool // in Session.posting
}

// Credit returns the deliveries that the peer would take now.
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
	if l.hasFlow { // the peer did not wait for our attach
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

// dropLocked forgets what is unsettled or waits.
func (l *SourceLink) dropLocked() {
	l.s.sent.all(func(o *Outgone) bool {
		if o.link == l {
			o.settled = true
		}
		return o.settled
	})
	l.posted = nil
}
