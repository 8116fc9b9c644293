// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"net"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// owner is a Conn for its transport.
type owner Conn

func (o *owner) Lock()   { o.mu.Lock() }
func (o *owner) Unlock() { o.mu.Unlock() }

// Rest prepares the connection to wait: it makes the pending calls of the handler, and completes
// the output and bounds it. It writes the dispositions and credit that have gathered while the
// frames of one read were handled, in as few frames as possible.
func (o *owner) Rest() {
	c := (*Conn)(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumeLocked()
	c.runTasksLocked()
	c.flushLocked()
	c.wire.WriteDirect()
	for {
		c.resumeLocked()
		c.runTasksLocked()
		c.idle = true
		c.flushLocked()
		if c.wire.Queued() > 0 {
			c.wire.Signal()
		}
		if !c.wire.Overfull(c.quota.Limited()) {
			return
		}
		// The peer sends requests faster than it reads the answers. The writer has a deadline, so this
		// ends.
		c.room.Wait()
	}
}

// Resume ends the wait for input.
func (o *owner) Resume(n int) error {
	c := (*Conn)(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumeLocked()
	if n > 0 {
		c.read = time.Now()
	}
	if spent := c.quota.Spend(n); spent != nil {
		return amqp.LimitExceeded(spent)
	}
	return nil
}

// Due reports whether the read loop waits. Otherwise it writes before it waits, or wakes the
// writer, so the answers to many frames leave in one write.
func (o *owner) Due() bool { return o.idle || o.wire.Eager() }

// Prepare makes calls of the handler in the writer while the read loop waits. So calls are prompt
// even if the peer is silent, and no read has to be interrupted.
func (o *owner) Prepare() {
	c := (*Conn)(o)
	if c.idle && len(c.tasks) > 0 {
		c.calling = true
		c.runTasksLocked()
		c.calling = false
		c.room.Broadcast()
	}
	if c.idle {
		c.flushLocked() // else the read loop does it, with more to merge
	}
}

// Taken continues with what waited for room in the output.
func (o *owner) Taken() { (*Conn)(o).pumpLocked() }

// Unsendable closes the connection: the peer can never get the frame.
func (o *owner) Unsendable(e *amqp.Error) {
	o.wire.Close(e)
	(*Conn)(o).releaseLocked()
}

// Failed ends the connection: no goroutine may wait for an output that is never written.
func (o *owner) Failed(error) {
	o.mu.Lock()
	(*Conn)(o).dieLocked()
	o.mu.Unlock()
	o.wire.NetConn.Close()
}

// Why returns the reason of this side.
func (o *owner) Why(err error) error {
	switch {
	case o.quota.Why() != nil:
		return o.quota.Why()
	case o.wire.CloseErr != nil:
		return o.wire.CloseErr
	case o.srv.conns.Closed() && (errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)):
		return ErrServerClosed
	}
	return nil
}

// Trace passes one frame to Config.Trace.
func (o *owner) Trace(dir string, ch uint16, p amqp.Performative, payload int) {
	if o.cfg.Trace != nil {
		o.cfg.Trace(dir, transport.TraceLine(o.id, ch, p, payload))
	}
}

// resumeLocked ends the wait of the read loop, during which the writer may be calling the handler.
func (c *Conn) resumeLocked() {
	for c.calling {
		c.room.Wait()
	}
	c.idle = false
}

// laterLocked queues calls of the handler: the read loop makes them before it waits, or the writer
// while it waits.
func (c *Conn) laterLocked(calls ...func()) {
	c.tasks = append(c.tasks, calls...)
	if c.idle && len(calls) > 0 {
		c.wire.Signal()
	}
}

// runTasksLocked makes the calls, without the lock. The read loop must not wait, so that one
// goroutine at a time calls the handler.
func (c *Conn) runTasksLocked() {
	for len(c.tasks) > 0 {
		tasks := c.tasks
		c.tasks = nil
		c.mu.Unlock()
		for _, f := range tasks {
			f()
		}
		c.mu.Lock()
	}
}

// flushLocked encodes pending dispositions and flows, merged.
func (c *Conn) flushLocked() {
	if len(c.dirty) == 0 {
		return
	}
	for i, s := range c.dirty {
		s.flushLocked()
		c.dirty[i] = nil
	}
	c.dirty = c.dirty[:0]
}

// touchLocked marks s: it has a pending disposition or flow.
func (c *Conn) touchLocked(s *Session) {
	if !s.dirty {
		s.dirty = true
		c.dirty = append(c.dirty, s)
	}
	if c.idle {
		c.wire.Signal()
	}
}
