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
	// maxAnswers bounds the queued frames that the peer has caused, so that a peer which sends and
	// does not read cannot fill the memory.
	maxAnswers = 1000
	// keptOutput bounds the buffers that a connection keeps.
	keptOutput = 256 << 10
	// writeTimeout bounds a write to a peer that does not read.
	writeTimeout = 10 * time.Second
	leastWrite   = 100 * time.Millisecond
	// closeTimeout bounds the write of the last frame.
	closeTimeout = time.Second
)

// output is the part of a connection that writes. Everything is encoded into out under the mutex.
// At most one goroutine writes.
type output struct {
	socket   socket.Socket
	maxFrame uint32 // of the peer
	out      []byte // encoded, and not yet taken by the writing goroutine
	spare    []byte // reused as out
	answers  int    // frames in out that the peer has caused
	writing  bool   // a goroutine writes, and checks out again before it stops
	wrote    time.Time
	blocked  []*link       // with deliveries that wait for credit, window or room in out
	transfer amqp.Transfer // encoded by every delivery, so that none allocates it
	tag      [4]byte
	spares   []*delivery // for reuse
}

// source is the input of the frame reader.
func (c *Conn) source() io.Reader {
	if c.socket.Exists() {
		return &c.socket
	}
	return c.nc
}

// putLocked queues one frame.
func (c *Conn) putLocked(channel uint16, p amqp.Performative) {
	c.out = amqp.AppendFrame(c.out, channel, p, nil)
}

// answerLocked queues a frame that the peer has caused.
func (c *Conn) answerLocked(channel uint16, p amqp.Performative) {
	c.putLocked(channel, p)
	c.answers++
}

// flushLocked writes the queued output, unless another goroutine does. It releases the mutex.
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

// write writes b. If the peer does not take it in time, the connection ends: over TLS, or a
// WebSocket, nothing can follow a partial write.
func (c *Conn) write(b []byte, until time.Time) error {
	if c.socket.Exists() {
		if b = b[c.socket.Write(b):]; len(b) == 0 {
			return nil
		}
	}
	// A deadline in the past would prevent later writes, including those of TLS itself.
	defer func() { _ = c.nc.SetWriteDeadline(time.Time{}) }() // an error would recur
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

// writeUntil is the deadline of a write for a caller with this context. A peer that reads has at
// least leastWrite, or a caller whose time is up would end the connection for all others.
func writeUntil(ctx context.Context) time.Time {
	now := time.Now()
	until := now.Add(writeTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		return now.Add(max(deadline.Sub(now), leastWrite))
	}
	return until
}
