// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"

	"overdue/internal/amqp"
)

// onAttach begins a link for the peer.
//
// If the name is attached already, the new link steals it (part 2 section 6.1). The peer may have
// lost its state of the old link, and a refusal would lock it out until the connection ends.
func (s *Session) onAttach(a *amqp.Attach) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.state != sessionOpen:
		return nil
	case a.Handle > s.handleMax:
		s.endLocked(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "Cannot allocate more handles to the current session or connection. "+
			"The maximum number of handles allowed is %d. Please free up resources and try again.", s.handleMax))
		return nil
	case s.links[a.Handle] != nil:
		s.endLocked(amqp.Errorf(amqp.ErrCondSessionHandleInUse, "Handle %d is attached already.", a.Handle))
		return nil
	}
	if err := c.quota.Link(c.nlinks + 1); err != nil {
		return amqp.LimitExceeded(err)
	}
	c.attached++
	l := link{s: s, attach: a, key: linkKey{a.Name, a.Role}, handle: noHandle, number: c.attached}
	p := &l
	reply := Reply{
		Source: a.Source, Target: a.Target, Coordinator: a.Coordinator,
		RcvSettleMode: a.RcvSettleMode, MaxMessageSize: c.cfg.MaxMessageSize,
	}
	if a.Role == amqp.RoleSender {
		sink := &SinkLink{link: l, Reply: reply}
		p = &sink.link
		p.sink = sink
	} else {
		reply.MaxMessageSize = noLimit
		source := &SourceLink{link: l, Reply: reply}
		p = &source.link
		p.source = source
	}
	s.links[a.Handle] = p
	s.known = max(s.known, a.Handle+1)
	c.nlinks++
	switch {
	case c.nlinks > 2*c.cfg.MaxLinks:
		// The peer does not detach refused links.
		return amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The connection has %d links, of which it may have %d.", c.nlinks, c.cfg.MaxLinks)
	case c.nlinks > c.cfg.MaxLinks:
		p.refuseLocked(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The connection has %d links, which is all it may have.", c.cfg.MaxLinks))
		return nil
	}
	if old := c.links[p.key]; old != nil {
		old.detachLocked(amqp.Errorf(amqp.ErrCondLinkStolen, "Link %q was attached again.", a.Name))
		c.runTasksLocked() // the old link ends before the new one begins
		if p.state != linkAttaching || s.state != sessionOpen {
			return nil
		}
	}
	c.links[p.key] = p
	p.beginLocked()
	c.runTasksLocked()
	return nil
}

// beginLocked asks the handler, without the lock.
func (l *link) beginLocked() {
	c := l.s.c
	c.mu.Unlock()
	var refusal *amqp.Error
	var accept func() bool // nil = the answer is deferred
	var detached func(*amqp.Error)
	if l.sink != nil {
		h, e := c.handler.AttachSink(l.sink)
		if refusal = e; h != nil {
			accept, detached = func() bool { return l.sink.acceptLocked(h) }, h.Detached
		}
	} else {
		h, e := c.handler.AttachSource(l.source)
		if refusal = e; h != nil {
			accept, detached = func() bool { return l.source.acceptLocked(h) }, h.Detached
		}
	}
	c.mu.Lock()
	switch {
	case refusal != nil:
		if l.state == linkAttaching {
			l.refuseLocked(refusal)
		}
	case accept != nil && !accept():
		c.laterLocked(func() { detached(errNotAttached()) }) // it ended before it began
	}
}

func errNotAttached() *amqp.Error {
	return &amqp.Error{Condition: amqp.ErrCondLinkDetachForced, Description: "The link ended before it was attached."}
}

// attachedLocked answers the attach and reports whether the connection has survived it.
func (l *link) attachedLocked() bool {
	l.putAttachLocked(false)
	if l.state != linkAttaching {
		return false
	}
	l.state = linkAttached
	if !l.reply().Resident {
		l.s.c.rules.hadLink = true
	}
	l.touchLocked()
	return true
}

// putAttachLocked answers the attach, under the lowest free handle: not above handleMax, since the
// peer has a handle in use for each of ours. refused means that the answer has only what it must.
func (l *link) putAttachLocked(refused bool) {
	s, a := l.s, l.attach
	handle := slices.Index(s.handles, nil)
	if handle < 0 {
		handle = len(s.handles)
		s.handles = append(s.handles, nil)
	}
	s.handles[handle] = l
	l.handle = uint32(handle)
	reply := &amqp.Attach{
		Name: a.Name, Handle: l.handle, Role: !a.Role,
		SndSettleMode: amqp.SndDefault, RcvSettleMode: amqp.RcvDefault,
	}
	if r := l.reply(); !refused {
		reply.SndSettleMode, reply.RcvSettleMode = a.SndSettleMode, r.RcvSettleMode
		reply.Source, reply.Target, reply.Coordinator = r.Source, r.Target, r.Coordinator
		reply.Properties, reply.OfferedCapabilities = r.Properties, r.OfferedCapabilities
		reply.MaxMessageSize, reply.InitialDeliveryCount = r.MaxMessageSize, r.InitialDeliveryCount
	}
	s.c.wire.Put(s.out, reply)
}

// reply returns the answer to the attach.
func (l *link) reply() *Reply {
	if l.sink != nil {
		return &l.sink.Reply
	}
	return &l.source.Reply
}
