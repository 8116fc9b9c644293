// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"errors"

	"overdue/internal/amqp"
)

const (
	// incomingWindow is how many frames the peer may send in a session: more than an answer of $cbs
	// needs.
	incomingWindow = 5000
	outgoingWindow = 5000
	// maxHandle is more than the peer needs for our links.
	maxHandle = 255
)

// A session belongs to the connection's mutex.
type session struct {
	c       *Conn
	channel uint16
	changed chan struct{} // one token: wait should test its condition again

	peer   uint16 // its channel
	begun  bool
	ending bool  // our end is sent
	over   bool  // both ends have been sent
	err    error // why the session is unusable; nil: it is usable

	links        []*link // by our handle
	nextOutgoing uint32  // transfer-id of our next frame
	window       uint32  // frames that the peer takes
	nextIncoming uint32  // transfer-id of the peer's next frame
	nextDelivery uint32
	unsettled    map[uint32]*delivery
}

// begin begins a session.
func (c *Conn) begin(ctx context.Context) (*session, error) {
	s := &session{c: c, changed: make(chan struct{}, 1), unsettled: map[uint32]*delivery{}}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	for s.channel <= c.channelMax && c.sessions[s.channel] != nil {
		s.channel++
	}
	if s.channel > c.channelMax {
		defer c.mu.Unlock()
		return nil, errors.New("the connection has no room for another session")
	}
	c.sessions[s.channel] = s
	c.putLocked(s.channel, &amqp.Begin{IncomingWindow: incomingWindow, OutgoingWindow: outgoingWindow, HandleMax: maxHandle})
	c.flushLocked(writeUntil(ctx))
	return s, s.wait(ctx, func() bool { return s.begun })
}

// wait waits until met returns true or the session has ended. It calls met with the mutex held. One
// goroutine at a time may call it.
func (s *session) wait(ctx context.Context, met func() bool) error {
	for {
		s.c.mu.Lock()
		ok, err := met(), s.err
		s.c.mu.Unlock()
		switch {
		case ok:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *session) notifyLocked() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// close ends the session and waits for the peer's end.
func (s *session) close(ctx context.Context) error {
	s.c.mu.Lock()
	if !s.ending && s.c.err == nil {
		s.endingLocked()
	}
	s.c.flushLocked(writeUntil(ctx))
	for {
		s.c.mu.Lock()
		over, err := s.over, s.c.err
		s.c.mu.Unlock()
		switch {
		case over:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endingLocked ends the session from this side.
func (s *session) endingLocked() {
	s.ending = true
	s.c.putLocked(s.channel, &amqp.End{})
	s.endLocked(&EndedError{Scope: Session})
}

// endLocked settles the deliveries of the session.
func (s *session) endLocked(why error) {
	s.err = why
	for _, l := range s.links {
		l.endLocked(why)
	}
	s.notifyLocked()
}

func (c *Conn) beganLocked(channel uint16, p *amqp.Begin) error {
	if !p.HasRemoteChannel || p.RemoteChannel > maxChannel || c.sessions[p.RemoteChannel] == nil || c.byPeer[channel] != nil {
		return violation("a begin on channel %d that answers none", channel)
	}
	s := c.sessions[p.RemoteChannel]
	if s.begun {
		return violation("a second begin for channel %d", s.channel)
	}
	s.begun, s.peer = true, channel
	s.window, s.nextIncoming = p.IncomingWindow, p.NextOutgoingID
	c.byPeer[channel] = s
	s.notifyLocked()
	return nil
}

func (s *session) peerEndedLocked(p *amqp.End) {
	if !s.ending {
		s.ending = true
		s.c.putLocked(s.channel, &amqp.End{})
		s.endLocked(&EndedError{Scope: Session, Remote: p.Error})
	}
	s.over = true
	s.c.sessions[s.channel] = nil
	delete(s.c.byPeer, s.peer)
	s.notifyLocked()
}

// attach attaches a link. If the peer refuses it, the error is the peer's own, not wrapped.
func (s *session) attach(ctx context.Context, a *amqp.Attach) (*link, error) {
	a.Name = "overdue-" + rand.Text()
	s.c.mu.Lock()
	if s.err != nil {
		defer s.c.mu.Unlock()
		return nil, s.err
	}
	a.Handle = uint32(len(s.links))
	l := &link{session: s, name: a.Name, handle: a.Handle, role: a.Role}
	s.links = append(s.links, l)
	s.c.putLocked(s.channel, a)
	s.c.flushLocked(writeUntil(ctx))
	if err := s.wait(ctx, func() bool { return l.attached || l.err != nil }); err != nil {
		return nil, err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if l.attached {
		return l, nil
	}
	if e := (*EndedError)(nil); errors.As(l.err, &e) && e.Scope == Link && e.Remote != nil {
		return nil, e.Remote
	}
	return nil, l.err
}

func (s *session) attachedLocked(p *amqp.Attach) error {
	if s.ending {
		return nil
	}
	for _, l := range s.links {
		if l.name != p.Name || l.role == p.Role {
			continue
		}
		if l.known {
			return violation("a second attach of link %.64q", p.Name)
		}
		l.known, l.peer = true, p.Handle
		l.maxMessage = p.MaxMessageSize
		if l.role == amqp.RoleReceiver {
			l.deliveryCount = p.InitialDeliveryCount
		}
		l.attached = p.Target != nil && l.role == amqp.RoleSender || p.Source != nil && l.role == amqp.RoleReceiver
		s.notifyLocked()
		return nil // without a terminus a detach follows, with the reason
	}
	return violation("an attach of link %.64q, which was not requested", p.Name)
}

// linkLocked returns the link with this handle of the peer, nil if there is none.
func (s *session) linkLocked(handle uint32) *link {
	for _, l := range s.links {
		if l.known && !l.detached && l.peer == handle {
			return l
		}
	}
	return nil
}

func (s *session) detachedLocked(p *amqp.Detach) {
	l := s.linkLocked(p.Handle)
	if l == nil || s.ending {
		return
	}
	l.detached = true
	s.c.putLocked(s.channel, &amqp.Detach{Handle: l.handle, Closed: true})
	l.endLocked(&EndedError{Scope: Link, Remote: p.Error})
	if len(s.links) == 1 { // the session has no other link
		s.endingLocked()
	}
	s.notifyLocked()
}

// flowLocked takes the peer's windows, and the credit of a link.
func (s *session) flowLocked(p *amqp.Flow) {
	if s.ending {
		return
	}
	underway := s.nextOutgoing // without a value, the peer has not seen our begin
	if p.HasNextIncomingID {
		underway -= p.NextIncomingID
	}
	s.window = p.IncomingWindow - min(p.IncomingWindow, underway)
	answer := p.Echo
	var l *link
	if p.HasHandle {
		l = s.linkLocked(p.Handle)
	}
	if l != nil && l.role == amqp.RoleSender {
		if p.HasLinkCredit {
			underway = l.deliveryCount
			if p.HasDeliveryCount {
				underway -= p.DeliveryCount
			}
			l.credit = p.LinkCredit - min(p.LinkCredit, underway)
		}
		s.c.pumpLocked()
		if p.Drain {
			l.deliveryCount += l.credit
			l.credit, answer = 0, true
		}
		s.notifyLocked()
	} else {
		s.c.pumpLocked()
	}
	if answer {
		s.answerFlowLocked(l, p.Drain)
	}
}

func (s *session) answerFlowLocked(l *link, drain bool) {
	p := &amqp.Flow{
		NextIncomingID: s.nextIncoming, HasNextIncomingID: true, IncomingWindow: incomingWindow,
		NextOutgoingID: s.nextOutgoing, OutgoingWindow: outgoingWindow,
	}
	if l != nil {
		p.Handle, p.HasHandle = l.handle, true
		p.DeliveryCount, p.HasDeliveryCount = l.deliveryCount, true
		p.LinkCredit, p.HasLinkCredit = l.credit, true
		p.Drain = drain
	}
	s.c.putLocked(s.channel, p)
}
