// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

type sessionState uint8

const (
	sessionOpen   sessionState = iota
	sessionEnding              // our end is sent, the peer's is awaited; its frames until then are dropped
	sessionGone
)

// A Session is one session of a connection. The connection's mutex guards all of it.
type Session struct {
	Local any // the handler's, for what the links of a session have in common

	c         *Conn
	in, out   uint16 // channel of the peer, and ours
	handleMax uint32 // of both sides
	state     sessionState
	heard     time.Time  // the peer's last frame, or our question whether it is there
	ready     *sync.Cond // the window opened, or a link became free to send or has ended

	links   map[uint32]*link // by the peer's handle
	known   uint32           // the peer may have attached any handle below it
	handles []*link          // by ours

	windows transport.Windows

	// Incoming:
	lastDelivery uint32
	hasDelivery  bool
	repeats      bool // some of the peer's delivery-ids do not rise
	received     transport.Unsettled[*Delivery]
	shared       map[uint32]amqp.DeliveryState // ids that several of received have, see shareLocked

	// Outgoing:
	nextDelivery uint32
	sent         transport.Unsettled[*Outgone]
	posting      []*SourceLink // links with posted messages that wait for the window or the output
	inPosting    bool          // in Conn.posting

	// Pending until the next flush:
	dirty    bool
	owesFlow bool
	sinks    []*SinkLink // whose credit may have to be topped up
	acks     [2][]ack    // by role: dispositions of receivers (what they sent us), of senders (what we sent them)
}

// Conn returns the connection of s.
func (s *Session) Conn() *Conn { return s.c }

// Channel returns the channel on which the peer sends.
func (s *Session) Channel() uint16 { return s.in }

// End ends the session with e, or without an error if e is nil, from any goroutine. The links'
// Detached follows soon.
func (s *Session) End(e *amqp.Error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.endLocked(e)
}

func (s *Session) endLocked(e *amqp.Error) {
	if s.state != sessionOpen {
		return
	}
	s.flushLocked()
	s.c.wire.Put(s.out, &amqp.End{Error: e})
	calls := s.overLocked(e)
	s.state = sessionEnding
	s.c.laterLocked(calls...)
}

// onBegin begins a session for the peer.
func (c *Conn) onBegin(ch uint16, b *amqp.Begin) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.wire.State != transport.Open:
		return nil
	case ch > c.cfg.ChannelMax:
		return amqp.Errorf(amqp.ErrCondConnectionFramingError, "Channel %d is above channel-max %d.", ch, c.cfg.ChannelMax)
	case c.sessions[ch] != nil:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "Channel %d has a session already.", ch)
	case b.HasRemoteChannel:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "Begin on channel %d answers a session that was never begun.", ch)
	}
	if err := c.quota.Session(len(c.sessions) + 1); err != nil {
		return amqp.LimitExceeded(err)
	}
	out := slices.Index(c.channels, nil)
	if out < 0 {
		out = len(c.channels)
		if out > int(c.wire.Peer.ChannelMax) {
			return amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The peer's channel-max %d leaves no channel for an answer.", c.wire.Peer.ChannelMax)
		}
		c.channels = append(c.channels, nil)
	}
	s := &Session{
		c: c, in: ch, out: uint16(out), handleMax: min(b.HandleMax, handleMax),
		heard:   time.Now(),
		ready:   sync.NewCond(&c.mu),
		links:   make(map[uint32]*link),
		windows: transport.Windows{Incoming: c.cfg.IncomingWindow, NextOutgoing: firstOutgoingID},
	}
	s.windows.Begin(b)
	c.sessions[ch], c.channels[out] = s, s
	c.wire.Put(s.out, &amqp.Begin{
		RemoteChannel: ch, HasRemoteChannel: true,
		NextOutgoingID: s.windows.NextOutgoing,
		IncomingWindow: s.windows.Incoming,
		OutgoingWindow: s.windows.Outgoing,
		HandleMax:      s.handleMax,
	})
	return nil
}

// onEnd ends the session at the peer's request, or completes End.
func (s *Session) onEnd(e *amqp.End) {
	c := s.c
	c.mu.Lock()
	if s.state == sessionOpen {
		c.wire.Put(s.out, &amqp.End{})
		why := e.Error
		c.laterLocked(s.overLocked(why)...)
	}
	s.state = sessionGone
	c.nlinks -= len(s.links)
	clear(s.links)
	delete(c.sessions, s.in)
	c.channels[s.out] = nil
	c.runTasksLocked()
	c.mu.Unlock()
}

// overLocked takes all links from the session and returns the calls that end their handlers.
func (s *Session) overLocked(why *amqp.Error) []func() {
	if s.state != sessionOpen {
		return nil
	}
	s.state = sessionGone
	var calls []func()
	for _, l := range s.handles {
		if l != nil {
			calls = append(calls, l.overLocked(why)...)
		}
	}
	for _, l := range s.links {
		l.overLocked(why) // attaches that wait for an answer have no handler yet
	}
	s.handles, s.posting, s.sinks = nil, nil, nil
	s.acks = [2][]ack{}
	s.received, s.sent, s.shared = transport.Unsettled[*Delivery]{}, transport.Unsettled[*Outgone]{}, nil
	s.ready.Broadcast()
	s.c.room.Broadcast()
	return calls
}

// flushLocked encodes the pending dispositions, credit and window of s.
func (s *Session) flushLocked() {
	s.dirty = false
	if s.state != sessionOpen {
		return
	}
	s.flushAcksLocked(amqp.RoleReceiver)
	s.flushAcksLocked(amqp.RoleSender)
	s.flushCreditLocked()
	if s.owesFlow {
		s.putFlowLocked(&s.c.flow)
	}
}
