// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
)

// handshakeClient handles the client's input from its first byte to its open. The answer waits
// for upstream.
func (c *conn) handshakeClient() error {
	s := &c.sides[client]
	c.beginAuth(s.nc.RemoteAddr())
	c.auth.grants.onProof(c.quota.Admit)
	proto, err := s.in.ReadProto()
	if err != nil {
		return s.readError(err)
	}
	if proto == amqp.ProtoSASL {
		if err := c.welcome(); err != nil {
			return err
		}
		s.in.SetMax(c.cfg.MaxFrameSize)
		if proto, err = s.in.ReadProto(); err != nil {
			return s.readError(err)
		}
		if proto != amqp.ProtoAMQP {
			s.putHeader(amqp.ProtoAMQP)
			return fmt.Errorf("protocol header % x after SASL, want AMQP 1.0.0", proto)
		}
	} else if proto != amqp.ProtoAMQP || c.needsSASL() {
		// Part 2 section 2.2: send the supported header, then close.
		s.putHeader(amqp.ProtoSASL)
		return fmt.Errorf("protocol header % x, want SASL 1.0.0", proto)
	}
	s.putHeader(amqp.ProtoAMQP)
	return s.readOpen()
}

// readOpen reads the peer's open.
func (s *side) readOpen() error {
	f, err := s.in.Next()
	if err != nil {
		return s.readError(err)
	}
	p, _, err := amqp.DecodePerformative(f.Body)
	if err != nil {
		return err
	}
	open, ok := p.(*amqp.Open)
	switch {
	case f.Type != amqp.FrameAMQP:
		return amqp.Errorf(amqp.ErrCondConnectionFramingError, "Frame of type %d in place of open.", f.Type)
	case !ok:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "The first frame is %T and must be open.", p)
	case open.MaxFrameSize < amqp.MinMaxFrameSize:
		return amqp.Errorf(amqp.ErrCondInvalidField, "max-frame-size is %d and must be at least %d.", open.MaxFrameSize, amqp.MinMaxFrameSize)
	case open.IdleTimeout > 0 && open.IdleTimeout < minIdleTimeout:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "idle-time-out is %d ms and must be at least %d ms.", open.IdleTimeout, minIdleTimeout)
	}
	s.trace("in", f.Channel, open, 0)
	s.c.mu.Lock()
	defer s.c.unlock()
	s.open = open
	s.channelMax = open.ChannelMax
	return nil
}

// openedLocked applies the peer's open, after our open has been queued.
func (s *side) openedLocked() {
	s.maxFrame = s.open.MaxFrameSize
	// Half of the time-out, so that one late keep-alive is not the end.
	s.keepAlive = time.Duration(s.open.IdleTimeout) * time.Millisecond / 2
	s.state = sideOpen
	s.signalLocked()
}

// upstreamError is a failure upstream before the client's open was answered.
type upstreamError struct{ err error }

func (e *upstreamError) Error() string { return "upstream: " + e.err.Error() }
func (e *upstreamError) Unwrap() error { return e.err }

// reachUpstream dials, and exchanges headers and SASL. It keeps the result for a second call.
func (c *conn) reachUpstream() error {
	if !c.reached {
		c.reached, c.unreached = true, c.dialUpstream()
	}
	return c.unreached
}

func (c *conn) dialUpstream() error {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.HandshakeTimeout)
	defer cancel()
	if err := c.quota.Spend(accept.UpstreamCost); err != nil {
		return amqp.LimitExceeded(err)
	}
	nc, err := c.cfg.Dial(ctx)
	if err != nil {
		return &upstreamError{err}
	}
	s := &c.sides[upstream]
	c.mu.Lock()
	s.connect(nc)
	over := c.wasCut || c.draining
	c.mu.Unlock()
	c.start(s)
	if over {
		return &upstreamError{errCut}
	}
	if err := c.introduce(); err != nil {
		return &upstreamError{err}
	}
	s.in.SetMax(c.cfg.MaxFrameSize)
	return nil
}

// connectUpstream reaches upstream and exchanges opens with it; then the client's
// open is answered.
func (c *conn) connectUpstream() error {
	if err := c.reachUpstream(); err != nil {
		return err
	}
	s := &c.sides[upstream]
	if err := c.openUpstream(); err != nil {
		return &upstreamError{err}
	}
	c.mu.Lock()
	defer c.unlock()
	if c.wasCut || c.draining {
		return &upstreamError{errCut}
	}
	if c.ownSession && s.channelMax == 0 {
		return &upstreamError{errors.New("it allows one session (channel-max 0), which the tokens of the proxy need; set proxy.credentials: client, so that clients bring theirs")}
	}
	s.openedLocked()
	if c.auth.grants == nil {
		c.quota.Admit() // upstream has accepted it, or it needs no token
	}
	if c.ownSession {
		s.channels = append(s.channels, nil) // ownChannel
		c.upstreamOpenLocked()
	}
	c.answerOpenLocked()
	return nil
}

// openUpstream exchanges headers and opens. Our open repeats the client's fields that do not
// belong to the hop.
func (c *conn) openUpstream() error {
	s := &c.sides[upstream]
	s.putHeader(amqp.ProtoAMQP)
	theirs := c.sides[client].open
	hostname := c.cfg.Hostname
	if hostname == "" {
		hostname = theirs.Hostname
	}
	c.mu.Lock()
	c.names = newNaming(hostname, theirs.Hostname)
	s.maxFrame = amqp.DefaultMaxFrameSize // what it takes is not known yet; an open is as long as the client's
	s.putLocked(0, &amqp.Open{
		ContainerID:         theirs.ContainerID,
		Hostname:            hostname,
		MaxFrameSize:        c.cfg.MaxFrameSize,
		ChannelMax:          c.cfg.ChannelMax,
		IdleTimeout:         uint32(min(s.idleTimeout.Milliseconds(), 1<<32-1)),
		OfferedCapabilities: theirs.OfferedCapabilities,
		DesiredCapabilities: theirs.DesiredCapabilities,
		Properties:          theirs.Properties,
	}, nil)
	c.unlock()
	proto, err := s.in.ReadProto()
	if err != nil {
		return s.readError(err)
	}
	if proto != amqp.ProtoAMQP {
		return fmt.Errorf("protocol header % x, want AMQP 1.0.0", proto)
	}
	return s.readOpen()
}

// answerOpenLocked opens towards the client. Like the service we take no larger
// frames than the client does.
func (c *conn) answerOpenLocked() {
	s := &c.sides[client]
	o := &amqp.Open{
		ContainerID:  "overdue",
		MaxFrameSize: c.cfg.MaxFrameSize,
		ChannelMax:   c.cfg.ChannelMax,
		IdleTimeout:  uint32(min(s.idleTimeout.Milliseconds(), 1<<32-1)),
	}
	if s.open != nil {
		o.MaxFrameSize = min(o.MaxFrameSize, s.open.MaxFrameSize)
	}
	if theirs := c.sides[upstream].open; theirs != nil {
		o.ContainerID = theirs.ContainerID
		o.ChannelMax = min(o.ChannelMax, theirs.ChannelMax)
		if c.ownSession && o.ChannelMax > 0 {
			o.ChannelMax-- // ownChannel
		}
		o.OfferedCapabilities, o.DesiredCapabilities, o.Properties = theirs.OfferedCapabilities, theirs.DesiredCapabilities, theirs.Properties
	}
	s.putLocked(0, o, nil)
	if s.open != nil {
		s.openedLocked()
	}
}

// refuse ends a connection whose handshake failed. It sends open first, if possible, because
// close may only follow open. A failure upstream becomes amqp:connection:forced, after which
// every SDK reconnects.
func (c *conn) refuse(err error) {
	down, up := &c.sides[client], &c.sides[upstream]
	var ue *upstreamError
	fromUpstream := errors.As(err, &ue)
	var e *amqp.Error
	var refused *saslRefusal
	switch {
	case fromUpstream && errors.As(err, &refused):
		e = amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "The namespace refuses the credentials: SASL outcome %d.", refused.code)
	case fromUpstream:
		e = amqp.Errorf(amqp.ErrCondConnectionForced, "The namespace cannot be reached: %v.", ue.err)
	case errors.As(err, &e), errors.Is(err, amqp.ErrFraming), errors.Is(err, amqp.ErrMalformed):
		e = amqp.AsError(err)
	}
	c.mu.Lock()
	c.cause = err
	if e != nil && down.state == sideHandshake {
		if down.open == nil {
			down.maxFrame = amqp.MinMaxFrameSize
		}
		c.answerOpenLocked()
		down.putLocked(0, &amqp.Close{Error: e}, nil)
	}
	// Wait only until the peer has the output.
	linger := !errors.Is(err, errHungUp) && !errors.Is(err, errHandshakeTime) || fromUpstream
	for i := range c.sides {
		s := &c.sides[i]
		s.state = sideDead
		s.deadline = time.Now().Add(c.cfg.CloseTimeout)
		if s.nc != nil {
			_ = s.nc.SetWriteDeadline(s.deadline) // of a write that is stalled already; a failure shows in the write
		}
		s.signalLocked()
	}
	c.room.Broadcast()
	c.unlock()
	if up.nc != nil {
		up.nc.Close() // upstream expects no answer
	}
	if linger {
		down.drainInput()
	}
}
