// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/socket"
)

const (
	// maxQueued is how many bytes may wait to be written before transfers are blocked.
	maxQueued = 1 << 20
	// maxAnswers is how many frames that a peer has caused may wait to be written: a peer that asks
	// and does not read cannot fill the memory.
	maxAnswers = 1000
	// keptOutput bounds the buffers that a connection keeps.
	keptOutput = 256 << 10
	// writeTimeout bounds a write to a peer that does not read.
	writeTimeout = 10 * time.Second
	// closeTimeout bounds the write of the last frame.
	closeTimeout = time.Second
)

// output is the part of a connection that writes. Everything is encoded into out under the mutex. At
// most one goroutine writes.
type output struct {
	socket   socket.Socket
	maxFrame uint32 // of the peer
	out      []byte // encoded, and not taken by the one who writes
	spare    []byte // to be used as out again
	answers  int    // frames in out that are no transfers
	writing  bool   // a goroutine writes, and looks into out again before it stops
	wrote    time.Time
	blocked  int           // deliveries of all links that wait for credit, window or room in out
	transfer amqp.Transfer // encoded by every delivery, so that none allocates it
	tag      [4]byte
	spares   []*delivery // to be used again
}

// source is where the frames come from.
func (c *Conn) source() io.Reader {
	if c.socket.Exists() {
		return &c.socket
	}
	return c.nc
}

// putLocked queues one frame.
func (c *Conn) putLocked(channel uint16, p amqp.Performative) {
	c.out = amqp.AppendFrame(c.out, channel, p, nil)
	c.answers++
}

// flushLocked writes what is queued, unless another goroutine does. It gives up the mutex.
func (c *Conn) flushLocked(until time.Time) {
	mine := !c.writing && len(c.out) > 0 && c.err == nil
	if mine {
		c.writing = true
	}
	c.mu.Unlock()
	if mine {
		c.writeQueued(until)
	}
}

// writeQueued writes until nothing is queued. The caller has set writing.
func (c *Conn) writeQueued(until time.Time) {
	c.mu.Lock()
	for len(c.out) > 0 && c.err == nil {
		out := c.out
		c.out, c.spare, c.answers = c.spare, nil, 0
		c.mu.Unlock()
		err := c.write(out, until)
		c.mu.Lock()
		if cap(out) <= keptOutput {
			c.spare = out[:0]
		}
		if err != nil {
			c.mu.Unlock()
			go c.fail(err)
			return
		}
		c.wrote = time.Now()
		c.pumpLocked()
	}
	c.writing = false
	c.mu.Unlock()
}

// write writes b. A peer that does not take it in time ends the connection: over TLS, or a
// WebSocket, nothing can follow a part of a write.
func (c *Conn) write(b []byte, until time.Time) error {
	if c.socket.Exists() {
		if b = b[c.socket.Write(b):]; len(b) == 0 {
			return nil
		}
	}
	// A deadline that passes later would keep the socket from being tried, and TLS from its own writes.
	defer func() { _ = c.nc.SetWriteDeadline(time.Time{}) }() // an error shows again
	if err := c.nc.SetWriteDeadline(until); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if _, err := c.nc.Write(b); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the peer does not read: %w", err)
	} else if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// writeUntil is when a write of the caller with this context has to be done.
func writeUntil(ctx context.Context) time.Time {
	until := time.Now().Add(writeTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		return deadline
	}
	return until
}
