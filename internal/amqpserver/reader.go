// SPDX-License-Identifier: Apache-2.0

package amqpserver

import (
	"io"
	"time"
)

// connReader is what the frame reader reads from. Whenever it is asked, the frames that came with the previous read
// have been handled, so this is where dispositions and credit gathered meanwhile are written, in as few frames as possible.
type connReader Conn

// Read waits for input until the deadline of the connection's state.
func (r *connReader) Read(p []byte) (int, error) {
	c := (*Conn)(r)
	for first := true; ; first = false {
		c.beforeRead(first)
		n, err := c.nc.Read(p)
		if n == 0 && c.pokedAwake(err) {
			continue
		}
		c.mu.Lock()
		c.idle = false
		if n > 0 {
			err = nil // it comes again with the next read
		}
		c.mu.Unlock()
		return n, err
	}
}

// beforeRead brings the connection to rest: the handler's calls are made, the output is complete and not too long.
func (c *Conn) beforeRead(first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		c.runTasksLocked()
		c.idle = true
		c.flushLocked()
		if len(c.out) > 0 {
			c.signalLocked()
		}
		if len(c.out) <= outHardLimit || c.state == connDead {
			break
		}
		// The peer asks faster than it takes the answers. The writer has a deadline, so this ends.
		c.room.Wait()
	}
	c.poked = false
	if first {
		c.waits = time.Now()
	}
	c.armLocked()
}

// armLocked sets the read deadline that the state calls for. Its error is left to the read that follows.
func (c *Conn) armLocked() {
	deadline := c.deadline
	if c.state == connOpen {
		deadline = c.waits.Add(idleTimeoutFactor * c.cfg.IdleTimeout)
	}
	_ = c.nc.SetReadDeadline(deadline)
}

// pokeLocked makes the read loop look at its tasks and its deadline, now if it waits for input.
func (c *Conn) pokeLocked() {
	if c.idle && !c.poked {
		c.poked = true
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // a failure shows in the read
	}
}

// pokedAwake reports whether a read failed only because of pokeLocked.
func (c *Conn) pokedAwake(err error) bool {
	if !isTimeout(err) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.poked
}

// laterLocked has the read loop call f, which is about the handler, soon.
func (c *Conn) laterLocked(fs ...func()) {
	if len(fs) > 0 {
		c.tasks = append(c.tasks, fs...)
		c.pokeLocked()
	}
}

// runTasksLocked runs the tasks without the lock.
func (c *Conn) runTasksLocked() {
	for len(c.tasks) > 0 {
		tasks := c.tasks
		c.tasks = nil
		c.idle = false
		c.mu.Unlock()
		for _, f := range tasks {
			f()
		}
		c.mu.Lock()
	}
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
