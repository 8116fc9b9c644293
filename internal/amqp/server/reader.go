// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"time"

	"overdue/internal/amqp"
)

// connReader is what the frame reader reads from. Whenever it is asked, the frames that came with
// the previous read have been handled, so this is where dispositions and credit gathered meanwhile
// are written, in as few frames as possible.
type connReader Conn

// Read waits for input until the deadline of the connection's state.
func (r *connReader) Read(p []byte) (int, error) {
	c := (*Conn)(r)
	var n int
	var err error
	if c.beforeRead() == connHandshake || !c.socket.Exists() {
		n, err = c.nc.Read(p) // a wrapper may hold the first bytes, by which it knew the protocol
	} else {
		n, err = c.socket.Read(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumeLocked()
	if n > 0 {
		err = nil // it comes again with the next read
	}
	if spent := c.quota.Spend(n); spent != nil {
		return 0, limitExceeded(spent)
	}
	return n, err
}

// limitExceeded returns the error for a peer that exceeds its quota; nil for nil.
func limitExceeded(err error) *amqp.Error {
	if err == nil {
		return nil
	}
	return amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The connection is closed: %v.", err)
}

// beforeRead brings the connection to rest: the handler's calls are made, the output is complete
// and not too long.
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
		// The peer asks faster than it takes the answers. The writer has a deadline, so this ends.
		c.room.Wait()
	}
	deadline := c.deadline
	if c.state == connOpen {
		// From now on, because while it waited for room the peer could not be heard.
		deadline = time.Now().Add(idleTimeoutFactor * c.cfg.IdleTimeout)
	}
	_ = c.nc.SetReadDeadline(deadline) // a failure shows in the read
	return c.state
}

// outLimit is how long the output may be before its cause has to wait.
func (c *Conn) outLimit() int {
	if c.quota.Limited() {
		return outUnauthenticatedLimit
	}
	return outHardLimit
}

// resumeLocked ends the read loop's rest, during which the writer may be making calls in its place.
func (c *Conn) resumeLocked() {
	for c.calling {
		c.room.Wait()
	}
	c.idle = false
}

// laterLocked has the handler called soon: by the read loop when it comes to rest, or by the writer
// while it rests.
func (c *Conn) laterLocked(calls ...func()) {
	c.tasks = append(c.tasks, calls...)
	if c.idle && len(calls) > 0 {
		c.signalLocked()
	}
}

// runTasksLocked makes the calls, without the lock. The read loop must not rest, so that the
// handler is called by one goroutine at a time.
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

// callWhileIdleLocked makes the calls in the writer while the read loop rests. It is what makes a
// call prompt though the peer is silent, and needs no trick with the transport to interrupt a read.
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
	// The peer's last words do not matter, nor does how they end.
	_, _ = io.Copy(io.Discard, c.nc)
}
