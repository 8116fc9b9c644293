// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strconv"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
	"overdue/internal/listener/socket"
)

// output is the part of a connection that writes. Everything is encoded into out under the
// connection's mutex. One goroutine at a time takes the bytes and writes them. It is the read loop
// before it waits, which writes as much as the socket takes at once, or the writer goroutine, which
// may wait. The next write takes everything that was queued meanwhile.
type output struct {
	out     []byte        // encoded and not yet taken
	rest    []byte        // taken by the read loop, but not by the socket; the writer's next
	writing bool          // a goroutine writes the bytes that it has taken
	spare   []byte        // a written buffer, for reuse
	wake    chan struct{} // one token: the writer has work
	room    *sync.Cond    // out became shorter, or the connection has ended
	socket  socket.Socket

	keepAlive time.Duration // between our frames; 0 = the peer asks for none
	wrote     time.Time     // when a frame was written last
	transfer  amqp.Transfer // encoded by every delivery, so that none allocates it
	flow      amqp.Flow
	ack       amqp.Disposition
}

func (c *Conn) initOutput() {
	c.wake = make(chan struct{}, 1)
	c.room = sync.NewCond(&c.mu)
	c.socket.Open(c.nc)
	c.wrote = time.Now()
}

// signalLocked wakes the writer.
func (o *output) signalLocked() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// queuedLocked follows every append to out. It wakes the writer if the read loop waits. Otherwise
// the read loop writes before it waits, or wakes the writer. So the answers to many frames leave in
// one write.
func (c *Conn) queuedLocked() {
	if c.idle || len(c.out) >= outEager && !c.socket.Exists() || c.state != connOpen {
		c.signalLocked()
	}
}

// putLocked queues one frame. If a frame is too large for the peer because of an error description,
// the description is shortened. Any other frame that is too large closes the connection, because
// the peer can never get it.
func (c *Conn) putLocked(ch uint16, p amqp.Performative) {
	if c.state != connOpen && c.state != connHandshake {
		return // nothing may follow a close
	}
	start := len(c.out)
	c.out = amqp.AppendFrame(c.out, ch, p, nil)
	if size := len(c.out) - start; size > int(c.maxFrame) {
		c.out = c.out[:start]
		short := amqp.Shortened(p)
		if short == nil {
			c.closeNowLocked(amqp.Errorf(amqp.ErrCondFrameSizeTooSmall,
				"A frame of %d bytes is due and max-frame-size is %d.", size, c.maxFrame))
			return
		}
		p = short
		c.out = amqp.AppendFrame(c.out, ch, p, nil)
	}
	c.trace("out", ch, p, 0)
	c.queuedLocked()
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
		c.signalLocked()
	}
}

// writeLoop writes the queued output, and a keep-alive after keepAlive without output. It returns
// nil when the connection is dead and everything is written.
func (c *Conn) writeLoop() error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		t := c.takeOutput()
		if len(t.buf) > 0 {
			rest := t.buf
			if c.socket.Exists() {
				rest = rest[c.socket.Write(rest):]
			}
			if err := accept.Write(c.nc, rest, c.writeTimeout); err != nil {
				return err
			}
			c.mu.Lock()
			c.wroteLocked(t.buf)
			c.mu.Unlock()
			continue
		}
		if t.over {
			return nil
		}
		if t.keepAlive == 0 {
			<-c.wake
			continue
		}
		timer.Reset(time.Until(t.wrote.Add(t.keepAlive)))
		select {
		case <-c.wake:
		case <-timer.C:
			c.mu.Lock()
			if len(c.out) == 0 && c.state == connOpen && time.Since(c.wrote) >= c.keepAlive {
				c.out = amqp.AppendFrame(c.out, 0, nil, nil)
			}
			c.mu.Unlock()
		}
	}
}

// taken is the next task of the writer.
type taken struct {
	buf       []byte // to write; empty = nothing now
	over      bool   // there is nothing to write, and never will be
	keepAlive time.Duration
	wrote     time.Time
}

// takeOutput takes everything that is queued, unless the read loop writes: then the read loop wakes
// the writer if anything is left.
func (c *Conn) takeOutput() taken {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callWhileIdleLocked()
	if c.idle {
		c.flushLocked() // else the read loop does it, with more to merge
	}
	t := taken{keepAlive: c.keepAlive, wrote: c.wrote}
	switch {
	case c.writing:
	case len(c.rest) > 0:
		t.buf, c.rest = c.rest, nil
		c.writing = true
	case len(c.out) > 0:
		t.buf = c.takeLocked()
	default:
		t.over = c.state == connDead
	}
	return t
}

// takeLocked takes everything that is queued, and wakes goroutines that waited for room.
func (c *Conn) takeLocked() []byte {
	buf := c.out
	c.out, c.spare = c.spare[:0], nil
	c.writing = true
	c.pumpLocked()
	c.room.Broadcast()
	return buf
}

// wroteLocked follows a write. It keeps the buffer for the next one, unless a burst has made it
// large.
func (c *Conn) wroteLocked(buf []byte) {
	c.writing, c.wrote = false, time.Now()
	if cap(buf) <= outKeep {
		c.spare = buf[:0]
	}
}

// writeDirectLocked writes everything that is queued as far as the socket takes it at once, without
// the lock. The writer gets the rest. Only the read loop may call it.
func (c *Conn) writeDirectLocked() {
	if len(c.out) == 0 || c.writing || len(c.rest) > 0 || c.state != connOpen || !c.socket.Exists() {
		return
	}
	buf := c.takeLocked()
	c.mu.Unlock()
	n := c.socket.Write(buf)
	c.mu.Lock()
	switch {
	case n == len(buf):
		c.wroteLocked(buf)
	case n > 0:
		c.writing, c.wrote, c.rest = false, time.Now(), buf[n:]
	default:
		c.writing, c.rest = false, buf
	}
	if len(c.rest) > 0 || len(c.out) > 0 || c.state != connOpen {
		c.signalLocked()
	}
}

// writeTimeout is shorter during a close, so that a stalled peer does not delay Shutdown.
func (c *Conn) writeTimeout() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connClosing || c.state == connDead {
		return min(c.cfg.WriteTimeout, c.cfg.CloseTimeout)
	}
	return c.cfg.WriteTimeout
}

// trace passes one frame to Config.Trace.
func (c *Conn) trace(dir string, ch uint16, p amqp.Performative, payload int) {
	if c.cfg.Trace != nil {
		c.cfg.Trace(dir, "["+strconv.FormatUint(c.id, 10)+"/"+strconv.Itoa(int(ch))+"] "+amqp.Trace(p, payload))
	}
}
