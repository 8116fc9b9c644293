// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
	"overdue/internal/listener/accept"
)

// handshakeClient handles the client's input from its first byte to its open. The answer waits
// for upstream.
func (c *conn) handshakeClient() error {
	s := &c.sides[client]
	c.beginAuth(s.NetConn.RemoteAddr())
	c.auth.grants.onProof(c.quota.Admit)
	err := s.Welcome(c.cfg.Mechanisms, c.auth.grants != nil, func(init *amqp.SASLInit) (string, error) {
		if err := c.judgeSASL(init); err != nil {
			return "", err
		}
		if !c.ownSession {
			c.saslInit = *init
		}
		return "Welcome!", c.passPassword(init)
	})
	if err != nil {
		return err
	}
	return s.ReadOpen()
}

// passPassword has upstream check a name and a password, if the relay does not check them itself.
// A client that saw OK earlier would believe that they are right. The other mechanisms prove
// nothing; their clients put tokens over $cbs. For those, the relay dials upstream only after the
// client's open. An unreachable upstream is reported after the open as well: a client reconnects
// after a close, but not after a SASL outcome.
func (c *conn) passPassword(init *amqp.SASLInit) error {
	var refused *transport.SASLRefusal
	if !c.ownSession && init.Mechanism == transport.Plain && errors.As(c.reachUpstream(), &refused) {
		return refused
	}
	return nil
}

// judgeSASL checks a client's password, if the relay checks passwords. The other mechanisms prove
// nothing yet; their clients put tokens.
func (c *conn) judgeSASL(init *amqp.SASLInit) error {
	if init.Mechanism != transport.Plain || c.auth.grants == nil {
		return nil
	}
	parts := bytes.Split(init.InitialResponse, []byte{0}) // authorization identity, authentication identity, password
	if len(parts) != 3 {
		return errors.New("the response is malformed")
	}
	return c.auth.grants.password(string(parts[1]), string(parts[2]))
}

// mechMSSBCBS is ANONYMOUS by the name that .NET looks for.
const mechMSSBCBS amqp.Symbol = "MSSBCBS"

// chooseSASL introduces the relay to upstream: anonymously when it has tokens of its own, otherwise
// with the client's credentials. The client chose before upstream made its offer. A mechanism that
// proves nothing may be replaced with ANONYMOUS; a password may not.
func (c *conn) chooseSASL(offer []amqp.Symbol) *amqp.SASLInit {
	init := c.saslInit
	c.saslInit = amqp.SASLInit{} // it may hold a password
	if init.Mechanism != transport.Plain && !slices.Contains(offer, init.Mechanism) {
		init = amqp.SASLInit{Mechanism: transport.Anonymous, InitialResponse: []byte("anonymous")}
		if !slices.Contains(offer, transport.Anonymous) {
			init.Mechanism = mechMSSBCBS
		}
	}
	init.Hostname = c.cfg.Hostname
	return &init
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
	s.connect(nc, c.cfg.UpstreamIdleTimeout)
	over := c.wasCut || c.draining
	c.mu.Unlock()
	if over {
		return &upstreamError{errCut}
	}
	if err := s.Introduce(c.chooseSASL); err != nil {
		return &upstreamError{err}
	}
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
	if c.ownSession && s.Peer.ChannelMax == 0 {
		return &upstreamError{errors.New("it allows one session (channel-max 0), which the tokens of the proxy need; set proxy.credentials: client, so that clients bring theirs")}
	}
	s.Opened()
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
	theirs := c.sides[client].Peer
	hostname := cmp.Or(c.cfg.Hostname, theirs.Hostname)
	c.mu.Lock()
	c.names = newNaming(hostname, theirs.Hostname)
	c.mu.Unlock()
	return s.Open(&amqp.Open{
		ContainerID:         theirs.ContainerID,
		Hostname:            hostname,
		MaxFrameSize:        c.cfg.MaxFrameSize,
		ChannelMax:          c.cfg.ChannelMax,
		IdleTimeout:         transport.IdleMillis(c.cfg.UpstreamIdleTimeout),
		OfferedCapabilities: theirs.OfferedCapabilities,
		DesiredCapabilities: theirs.DesiredCapabilities,
		Properties:          theirs.Properties,
	})
}

// answerOpenLocked opens towards the client. Like the service we take no larger
// frames than the client does.
func (c *conn) answerOpenLocked() {
	s := &c.sides[client]
	o := &amqp.Open{
		ContainerID:  "overdue",
		MaxFrameSize: c.cfg.MaxFrameSize,
		ChannelMax:   c.cfg.ChannelMax,
		IdleTimeout:  transport.IdleMillis(c.cfg.IdleTimeout),
	}
	if s.Peer != nil {
		o.MaxFrameSize = min(o.MaxFrameSize, s.Peer.MaxFrameSize)
	}
	if theirs := c.sides[upstream].Peer; theirs != nil {
		o.ContainerID = theirs.ContainerID
		o.ChannelMax = min(o.ChannelMax, theirs.ChannelMax)
		if c.ownSession && o.ChannelMax > 0 {
			o.ChannelMax-- // ownChannel
		}
		o.OfferedCapabilities, o.DesiredCapabilities, o.Properties = theirs.OfferedCapabilities, theirs.DesiredCapabilities, theirs.Properties
	}
	s.Put(0, o)
	if s.Peer != nil {
		s.Opened()
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
	var refused *transport.SASLRefusal
	switch {
	case fromUpstream && errors.As(err, &refused):
		e = amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "The namespace refuses the credentials: SASL outcome %d.", refused.Code)
	case fromUpstream:
		e = amqp.Errorf(amqp.ErrCondConnectionForced, "The namespace cannot be reached: %v.", ue.err)
	case errors.As(err, &e), errors.Is(err, amqp.ErrFraming), errors.Is(err, amqp.ErrMalformed):
		e = amqp.AsError(err)
	}
	c.mu.Lock()
	c.cause = err
	if e != nil && down.State == transport.Handshaking {
		c.answerOpenLocked()
		down.Put(0, &amqp.Close{Error: e})
	}
	// Wait only until the peer has the output.
	linger := !errors.Is(err, transport.ErrHungUp) && !errors.Is(err, transport.ErrHandshakeTime) || fromUpstream
	for i := range c.sides {
		c.sides[i].End(nil)
	}
	c.unlock()
	if up.NetConn != nil {
		up.NetConn.Close() // upstream expects no answer
	}
	if linger {
		down.DrainInput()
	}
}
