// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// handshake takes the connection from its first byte to both opens: an optional SASL layer, the
// AMQP header, open.
func (c *Conn) handshake() error {
	err := c.wire.Welcome(c.cfg.Mechanisms, false, func(init *amqp.SASLInit) (string, error) {
		if c.cfg.Authenticate != nil && !c.cfg.Authenticate(init.Mechanism, init.InitialResponse) {
			return "", errCredentials
		}
		c.mechanism, c.response = init.Mechanism, init.InitialResponse
		return c.cfg.SASLWelcome, nil
	})
	if err != nil {
		return err
	}
	if err := c.wire.ReadOpen(); err != nil {
		c.openAnyway(err)
		return err
	}
	handler, refusal := c.cfg.Handler.Connect(c)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire.State == transport.Dead { // closed meanwhile; abandon ends the handler
		c.handler = handler
		return ErrServerClosed
	}
	c.putOpenLocked()
	c.wire.Opened()
	if refusal != nil {
		return refusal // becomes our close
	}
	c.handler = handler
	c.rules.begin(c)
	return nil
}

// openAnyway sends our open before a refusal, since close may only follow open.
func (c *Conn) openAnyway(err error) {
	if over(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire.State == transport.Handshaking {
		c.putOpenLocked()
		c.wire.State = transport.Open
	}
}

// over reports whether a peer whose handshake ended with err expects no answer.
func over(err error) bool {
	return errors.Is(err, transport.ErrHungUp) || errors.Is(err, transport.ErrHandshakeTime)
}

// putOpenLocked sends our open. Like the service, we state no larger frames and no more channels
// than the peer does.
func (c *Conn) putOpenLocked() {
	most, channels := c.cfg.MaxFrameSize, c.cfg.ChannelMax
	if open := c.wire.Peer; open != nil {
		most, channels = min(most, open.MaxFrameSize), min(channels, open.ChannelMax)
	}
	c.wire.Put(0, &amqp.Open{
		ContainerID:  c.cfg.ContainerID,
		MaxFrameSize: most,
		ChannelMax:   channels,
		IdleTimeout:  transport.IdleMillis(c.cfg.IdleTimeout),
	})
}
