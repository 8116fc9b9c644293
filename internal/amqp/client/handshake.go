// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"overdue/internal/amqp"
)

const saslAnonymous amqp.Symbol = "ANONYMOUS"

// handshake negotiates the connection until ctx ends.
func (c *Conn) handshake(ctx context.Context, host string) error {
	stop := context.AfterFunc(ctx, func() { _ = c.nc.SetDeadline(time.Unix(1, 0)) }) // an error means that nc is closed already
	err := c.negotiate(host)
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

func (c *Conn) negotiate(host string) error {
	if err := c.exchange(amqp.ProtoSASL); err != nil {
		return err
	}
	if err := c.authenticate(); err != nil {
		return err
	}
	if err := c.exchange(amqp.ProtoAMQP); err != nil {
		return err
	}
	_, err := c.nc.Write(amqp.AppendFrame(nil, 0, &amqp.Open{
		ContainerID: rand.Text(), Hostname: host, MaxFrameSize: maxFrame, ChannelMax: maxChannel,
		IdleTimeout: uint32(idleTimeout / time.Millisecond),
	}, nil))
	if err != nil {
		return err
	}
	p, err := c.answer(amqp.FrameAMQP)
	if err != nil {
		return err
	}
	switch p := p.(type) {
	case *amqp.Open:
		c.maxFrame, c.channelMax = max(p.MaxFrameSize, amqp.MinMaxFrameSize), min(p.ChannelMax, maxChannel)
		if p.IdleTimeout > 0 {
			c.keepAlive = max(time.Duration(p.IdleTimeout)*time.Millisecond/2, leastKeepAlive)
		}
		return nil
	case *amqp.Close:
		return &EndedError{Scope: Connection, Remote: p.Error}
	}
	return violation("%T instead of an open", p)
}

// exchange sends a protocol header and reads the same.
func (c *Conn) exchange(header [8]byte) error {
	if _, err := c.nc.Write(header[:]); err != nil {
		return err
	}
	got, err := c.frames.ReadProto()
	if err == nil && got != header {
		err = violation("protocol header %q, want %q", got[:], header[:])
	}
	return err
}

func (c *Conn) authenticate() error {
	p, err := c.answer(amqp.FrameSASL)
	if err != nil {
		return err
	}
	offer, ok := p.(*amqp.SASLMechanisms)
	if !ok || !slices.Contains(offer.Mechanisms, saslAnonymous) {
		return violation("the peer does not offer SASL %s", saslAnonymous)
	}
	init := &amqp.SASLInit{Mechanism: saslAnonymous, InitialResponse: []byte("anonymous")}
	if _, err := c.nc.Write(amqp.AppendSASLFrame(nil, init)); err != nil {
		return err
	}
	if p, err = c.answer(amqp.FrameSASL); err != nil {
		return err
	}
	if outcome, ok := p.(*amqp.SASLOutcome); !ok || outcome.Code != amqp.SASLOK {
		return fmt.Errorf("SASL %s is refused: %s", saslAnonymous, amqp.Trace(p, 0))
	}
	return nil
}

// answer reads the next performative.
func (c *Conn) answer(kind byte) (amqp.Performative, error) {
	for {
		f, err := c.frames.Next()
		if err != nil {
			return nil, err
		}
		if f.Type != kind {
			return nil, fmt.Errorf("%w: type %d, want %d", amqp.ErrFraming, f.Type, kind)
		}
		if len(f.Body) > 0 {
			p, _, err := amqp.DecodePerformative(f.Body)
			return p, err
		}
	}
}
