// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"slices"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
)

// finish sends close if err is the peer's fault and the connection can still carry it. It reports
// whether the input has to be drained until the peer has read the close: closing a socket with
// unread input would discard it.
func (c *Conn) finish(err error) (linger bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e *amqp.Error
	if c.state == connOpen {
		switch {
		case errors.Is(err, errSilent):
			e = &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded,
				Description: "Nothing was received within the idle time-out."}
		case errors.As(err, &e), errors.Is(err, amqp.ErrFraming), errors.Is(err, amqp.ErrMalformed):
			e = amqp.AsError(err)
			linger = true
		}
		if e != nil {
			c.flushLocked()
			c.closeErr = e
			c.putLocked(0, &amqp.Close{Error: e})
		}
	} else if err != nil && c.state == connHandshake {
		linger = !errors.Is(err, errHungUp) && !accept.IsTimeout(err)
	}
	c.state = connDead
	c.endIdleLocked()
	c.deadline = time.Now().Add(c.cfg.CloseTimeout)
	_ = c.nc.SetWriteDeadline(c.deadline) // for a stalled write; a failure shows in the write
	c.releaseLocked()
	return linger
}

// closeSent reports whether the connection ends because of our own close.
func (c *Conn) closeSent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeErr != nil
}

// abandon ends the handler's links and calls its Closed.
func (c *Conn) abandon(err error) {
	why := amqp.AsError(err)
	if why == nil {
		why = &amqp.Error{Condition: amqp.ErrCondConnectionForced,
			Description: "The connection was closed."}
	} else if why.Condition == amqp.ErrCondInternalError {
		why = amqp.Errorf(amqp.ErrCondConnectionForced, "The connection ended: %v.", err)
	}
	c.mu.Lock()
	channels := make([]uint16, 0, len(c.sessions))
	for ch := range c.sessions {
		channels = append(channels, ch)
	}
	slices.Sort(channels)
	for _, ch := range channels {
		c.tasks = append(c.tasks, c.sessions[ch].overLocked(why)...)
	}
	c.runTasksLocked()
	c.mu.Unlock()
	if c.handler != nil {
		c.handler.Closed(err)
	}
}
