// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"errors"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

const (
	// incomingWindow is how many frames the peer may send in a session before it hears more of us.
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
	err    error // why the session is unusable; nil: it is usable

	links        []*link // by our handle
	windows      transport.Windows
	nextDelivery uint32
	unsettled    transport.Unsettled[*delivery]
	settling     transport.Unsettled[settlement] // of what the peer has sent, by its delivery-id
}

// beginLocked begins a session. Frames on it need not wait for the peer's begin.
func (c *Conn) beginLocked() (*session, error) {
	if c.err != nil {
		return nil, c.err
	}
	s := &session{c: c, changed: make(chan struct{}, 1), windows: transport.Windows{Incoming: incomingWindow}}
	switch n := len(c.free); {
	case n > 0:
		s.channel, c.free = c.free[n-1], c.free[:n-1]
	case c.shared && len(c.sessions) > 0, len(c.sessions) > int(min(c.wire.Peer.ChannelMax, maxChannel)):
		return nil, ErrNoChannel
	default:
		s.channel, c.sessions = uint16(len(c.sessions)), append(c.sessions, nil)
	}
	c.sessions[s.channel] = s
	c.wire.Put(s.channel, &amqp.Begin{IncomingWindow: incomingWindow, OutgoingWindow: outgoingWindow, HandleMax: maxHandle})
	return s, nil
}

// attachAlone attaches a link in a session of its own, in one round trip. A refusal by the peer is
// an *amqp.Error.
func (c *Conn) attachAlone(ctx context.Context, a *amqp.Attach, head int) (*link, error) {
	c.mu.Lock()
	s, err := c.beginLocked()
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	l := s.attachLocked(a, head)
	c.wire.Flush(writeUntil(ctx))
	if err := s.attached(ctx, l); err != nil {
		s.abandon(ctx, err)
		return nil, err
	}
	return l, nil
}

// abandon ends a session in which a link was not attached. If the peer has not refused it, the
// state of the connection is in doubt.
func (s *session) abandon(ctx context.Context, why error) {
	if refusal := (*amqp.Error)(nil); s.c.shared || errors.As(why, &refusal) {
		s.close(ctx)
		return
	}
	go s.c.fail(why)
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

// close ends the session. It does not wait for the peer's end.
func (s *session) close(ctx context.Context) {
	s.c.mu.Lock()
	if !s.ending && s.c.err == nil {
		s.endingLocked()
	}
	s.c.wire.Flush(writeUntil(ctx))
}

// endingLocked ends the session from this side.
func (s *session) endingLocked() {
	s.ending = true
	s.c.wire.Put(s.channel, &amqp.End{})
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
	if !p.HasRemoteChannel || int(p.RemoteChannel) >= len(c.sessions) || c.sessions[p.RemoteChannel] == nil || c.byPeer[channel] != nil {
		return violation("a begin on channel %d that answers none", channel)
	}
	s := c.sessions[p.RemoteChannel]
	if s.begun {
		return violation("a second begin for channel %d", s.channel)
	}
	s.begun, s.peer = true, channel
	s.windows.Begin(p)
	c.byPeer[channel] = s
	s.notifyLocked()
	return nil
}

func (s *session) peerEndedLocked(p *amqp.End) {
	if !s.ending {
		s.ending = true
		s.c.answerLocked(s.channel, &amqp.End{})
		s.endLocked(&EndedError{Scope: Session, Remote: p.Error})
	}
	s.c.sessions[s.channel] = nil
	s.c.free = append(s.c.free, s.channel)
	delete(s.c.byPeer, s.peer)
	select {
	case s.c.freed <- struct{}{}:
	default:
	}
	s.notifyLocked()
}

// attachLocked sends the attach of a link.
func (s *session) attachLocked(a *amqp.Attach, head int) *link {
	a.Name, a.Handle = "overdue-"+rand.Text(), uint32(len(s.links))
	l := &link{session: s, name: a.Name, handle: a.Handle, role: a.Role, head: head, changed: make(chan struct{}, 1)}
	s.links = append(s.links, l)
	s.c.wire.Put(s.channel, a)
	return l
}

// attached waits for the peer's attach. If the peer refuses the link, the error is the peer's own,
// not wrapped.
func (s *session) attached(ctx context.Context, l *link) error {
	if err := s.wait(ctx, func() bool { return l.attached || l.err != nil }); err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if l.attached {
		return nil
	}
	if e := (*EndedError)(nil); errors.As(l.err, &e) && e.Scope == Link && e.Remote != nil {
		return e.Remote
	}
	return l.err
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
	s.c.answerLocked(s.channel, &amqp.Detach{Handle: l.handle, Closed: true})
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
	s.windows.Flow(p, 0)
	var l *link
	if p.HasHandle {
		l = s.linkLocked(p.Handle)
	}
	if l == nil || l.role == amqp.RoleReceiver {
		s.c.pumpLocked()
		if l != nil {
			l.grantedLocked(p)
		}
		if p.Echo {
			s.answerFlowLocked(l, false)
		}
		return
	}
	if p.HasLinkCredit {
		underway := l.deliveryCount
		if p.HasDeliveryCount {
			underway -= p.DeliveryCount
		}
		l.credit = p.LinkCredit - min(p.LinkCredit, underway)
	}
	s.c.pumpLocked()
	if p.Drain {
		l.deliveryCount += l.credit
		l.credit = 0
	}
	s.notifyLocked()
	if p.Drain || p.Echo {
		s.answerFlowLocked(l, p.Drain)
	}
}

// answerFlowLocked is putFlowLocked for a flow that the peer has caused.
func (s *session) answerFlowLocked(l *link, drain bool) {
	s.putFlowLocked(l, drain)
	s.c.answers++
}

// putFlowLocked sends the state of the session and of a link; nil: of the session alone.
func (s *session) putFlowLocked(l *link, drain bool) {
	s.windows.Incoming = incomingWindow
	p := &amqp.Flow{HasNextIncomingID: s.begun, OutgoingWindow: outgoingWindow}
	s.windows.Fill(p)
	if l != nil {
		p.Handle, p.HasHandle = l.handle, true
		p.DeliveryCount, p.HasDeliveryCount = l.deliveryCount, true
		p.LinkCredit, p.HasLinkCredit = l.credit, true
		p.Drain = drain
	}
	s.c.wire.Put(s.channel, p)
}
