// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"time"

	"overdue/internal/amqp"
)

// connReader is the input of the frame reader. At each call the frames of the previous read have
// been handled. So it writes the dispositions and credit that have gathered meanwhile, in as few
// frames as possible.
type connReader Conn

// Read waits for input until the deadline of the connection's state.
func (r *connReader) Read(p []byte) (int, error) {
	c := (*Conn)(r)
	var n int
	var err error
	if c.beforeRead() == connHandshake || !c.socket.Exists() {
		n, err = c.nc.Read(p) // a wrapper may hold the first bytes, which it read to detect the protocol
	} else {
		n, err = c.socket.Read(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumeLocked()
	if n > 0 {
		c.read = time.Now()
		err = nil // the next read returns it again
	}
	if spent := c.quota.Spend(n); spent != nil {
		return 0, amqp.LimitExceeded(spent)
	}
	return n, err
}

// beforeRead prepares the connection to wait: it makes the pending calls of the handler, and
// completes the output and bounds it.
func (c *Conn) beforeRead() connState {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumeLocked()
	c.runTasksLocked()
	c.flushLocked()
	c.writeDirectLocked()
	for {
		c.resumeLocked()
		c.runTasksLocked()
		c.idle = true
		c.flushLocked()
		if len(c.out) > 0 {
			c.signalLocked()
		}
		if len(c.out) <= c.outLimit() || c.state == connDead {
			break
		}
		// The peer sends requests faster than it reads the answers. The writer has a deadline, so this
		// ends.
		c.room.Wait()
	}
	deadline := c.deadline
	if c.state == connOpen {
		// From now on, because nothing was read from the peer during the wait.
		deadline = time.Now().Add(idleTimeoutFactor * c.cfg.IdleTimeout)
	}
	_ = c.nc.SetReadDeadline(deadline) // a failure shows in the read
	return c.state
}

// outLimit is the length of output at which the read loop waits.
func (c *Conn) outLimit() int {
	if c.quota.Limited() {
		return outUnauthenticatedLimit
	}
	return outHardLimit
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
		c.signalLocked()
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

// callWhileIdleLocked makes the calls in the writer while the read loop waits. So calls are prompt
// even if the peer is silent, and no read has to be interrupted.
func (c *Conn) callWhileIdleLocked() {
	if !c.idle || len(c.tasks) == 0 {
		return
	}
	c.calling = true
	c.runTasksLocked()
	c.calling = false
	c.room.Broadcast()
}

// drainInput reads until the peer hangs up, at most until the deadline.
func (c *Conn) drainInput() {
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	if err := c.nc.SetReadDeadline(deadline); err != nil {
		return // closed already
	}
	// The rest of the input does not matter, nor does its error.
	_, _ = io.Copy(io.Discard, c.nc)
}
