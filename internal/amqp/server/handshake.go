// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
)

// handshake takes the connection from its first byte to both opens: an optional SASL layer, the
// AMQP header, open.
func (c *Conn) handshake() error {
	proto, err := c.in.ReadProto()
	if err != nil {
		return c.readError(err)
	}
	if proto == amqp.ProtoSASL {
		if err := c.authenticate(); err != nil {
			return err
		}
		if proto, err = c.in.ReadProto(); err != nil {
			return c.readError(err)
		}
		if proto != amqp.ProtoAMQP {
			c.putHeader(amqp.ProtoAMQP)
			return fmt.Errorf("protocol header % x after SASL, want AMQP 1.0.0", proto)
		}
	} else if proto != amqp.ProtoAMQP {
		// Part 2 section 2.2: send the supported header, then close.
		c.putHeader(amqp.ProtoSASL)
		return fmt.Errorf("protocol header % x, want AMQP 1.0.0 or SASL 1.0.0", proto)
	}
	c.putHeader(amqp.ProtoAMQP)
	return c.negotiate()
}

// authenticate lets the peer choose a mechanism, and accepts it if Config.Authenticate does.
func (c *Conn) authenticate() error {
	c.putHeader(amqp.ProtoSASL)
	c.putSASL(&amqp.SASLMechanisms{Mechanisms: c.cfg.Mechanisms})
	c.in.SetMax(maxSASLFrame)
	f, err := c.in.Next()
	if err != nil {
		return c.readError(err)
	}
	if f.Type != amqp.FrameSASL {
		return fmt.Errorf("frame of type %d, want a SASL frame", f.Type)
	}
	p, _, err := amqp.DecodePerformative(f.Body)
	if err != nil {
		return err
	}
	c.trace("in", 0, p, 0)
	init, ok := p.(*amqp.SASLInit)
	if !ok {
		return fmt.Errorf("SASL frame %T, want sasl-init", p)
	}
	if !slices.Contains(c.cfg.Mechanisms, init.Mechanism) {
		c.putSASL(&amqp.SASLOutcome{Code: amqp.SASLAuth})
		return fmt.Errorf("SASL mechanism %q is not offered", init.Mechanism)
	}
	if c.cfg.Authenticate != nil && !c.cfg.Authenticate(init.Mechanism, init.InitialResponse) {
		c.putSASL(&amqp.SASLOutcome{Code: amqp.SASLAuth})
		return fmt.Errorf("SASL %s: %w", init.Mechanism, errCredentials)
	}
	c.mechanism, c.response = init.Mechanism, init.InitialResponse
	outcome := &amqp.SASLOutcome{Code: amqp.SASLOK}
	if c.cfg.SASLWelcome != "" {
		outcome.AdditionalData = []byte(c.cfg.SASLWelcome)
	}
	c.putSASL(outcome)
	c.in.SetMax(c.cfg.MaxFrameSize)
	return nil
}

// negotiate exchanges opens.
func (c *Conn) negotiate() error {
	f, err := c.in.Next()
	if err != nil {
		err = c.readError(err)
		c.openAnyway(err)
		return err
	}
	p, _, err := amqp.DecodePerformative(f.Body)
	open, ok := p.(*amqp.Open)
	switch {
	case err != nil:
	case f.Type != amqp.FrameAMQP:
		err = amqp.Errorf(amqp.ErrCondConnectionFramingError, "Frame of type %d in place of open.", f.Type)
	case !ok:
		err = amqp.Errorf(amqp.ErrCondNotAllowed, "The first frame is %T and must be open.", p)
	case open.MaxFrameSize < amqp.MinMaxFrameSize:
		err = amqp.Errorf(amqp.ErrCondInvalidField, "max-frame-size is %d and must be at least %d.", open.MaxFrameSize, amqp.MinMaxFrameSize)
	case open.IdleTimeout > 0 && open.IdleTimeout < minIdleTimeout:
		err = amqp.Errorf(amqp.ErrCondNotAllowed, "idle-time-out is %d ms and must be at least %d ms.", open.IdleTimeout, minIdleTimeout)
	}
	if err != nil {
		c.openAnyway(err)
		return err
	}
	c.trace("in", f.Channel, open, 0)
	c.open = open
	c.channelMax = open.ChannelMax
	handler, refusal := c.cfg.Handler.Connect(c)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connDead { // closed meanwhile; abandon ends the handler
		c.handler = handler
		return ErrServerClosed
	}
	c.putOpenLocked()
	c.maxFrame = open.MaxFrameSize
	// Half of the timeout, so that one late keep-alive does not end the connection.
	c.keepAlive = time.Duration(open.IdleTimeout) * time.Millisecond / 2
	c.state = connOpen
	if refusal != nil {
		return refusal // becomes our close
	}
	c.handler = handler
	c.beginIdleLocked()
	return nil
}

// openAnyway sends our open before a refusal, since close may only follow open.
func (c *Conn) openAnyway(err error) {
	if errors.Is(err, errHungUp) || accept.IsTimeout(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connHandshake {
		c.putOpenLocked()
		c.state = connOpen
	}
}

// putOpenLocked sends our open. Like the service, we state no larger frames and no more channels
// than the peer does.
func (c *Conn) putOpenLocked() {
	most, channels := c.cfg.MaxFrameSize, c.cfg.ChannelMax
	if c.open != nil {
		most, channels = min(most, c.open.MaxFrameSize), min(channels, c.open.ChannelMax)
	}
	c.putLocked(0, &amqp.Open{
		ContainerID:  c.cfg.ContainerID,
		MaxFrameSize: most,
		ChannelMax:   channels,
		IdleTimeout:  uint32(min(c.cfg.IdleTimeout.Milliseconds(), 1<<32-1)),
	})
}

func (c *Conn) putHeader(proto [8]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, proto[:]...)
	c.queuedLocked()
}

func (c *Conn) putSASL(p amqp.Performative) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = amqp.AppendSASLFrame(c.out, p)
	c.trace("out", 0, p, 0)
	c.queuedLocked()
}
