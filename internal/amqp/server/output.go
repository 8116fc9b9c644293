// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strconv"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
)

// output is the part of a connection that is about writing. Everything is encoded into out under the connection's
// mutex; only the writer goroutine touches the socket. What is queued while it writes goes out with its next write.
type output struct {
	out   []byte        // encoded and not yet with the writer
	spare []byte        // the writer's previous buffer, to be used again
	wake  chan struct{} // one token: the writer has something to look at
	room  *sync.Cond    // out became shorter, or the connection is over

	keepAlive time.Duration // between our frames; 0 = the peer asks for none
	transfer  amqp.Transfer // encoded by every delivery, so that none allocates it
	flow      amqp.Flow
	ack       amqp.Disposition
}

func (c *Conn) initOutput() {
	c.wake = make(chan struct{}, 1)
	c.room = sync.NewCond(&c.mu)
}

// signalLocked wakes the writer.
func (o *output) signalLocked() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// queuedLocked follows whatever has been appended to out: the writer is woken at once when nobody else will do it, and
// otherwise by the read loop when it comes to rest, which puts the answers to many frames into one write.
func (c *Conn) queuedLocked() {
	if c.idle || len(c.out) >= outEager || c.state != connOpen {
		c.signalLocked()
	}
}

// putLocked queues one frame. A frame that is too large for the peer is shortened if all that is too long is an error's
// explanation; otherwise the connection is closed, because the peer can never get it.
func (c *Conn) putLocked(ch uint16, p amqp.Performative) {
	if c.state != connOpen && c.state != connHandshake {
		return // after close nothing may follow
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

// flushLocked queues what is owed but not yet encoded: dispositions and flows, merged.
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

// touchLocked notes that s owes the peer a disposition or a flow.
func (c *Conn) touchLocked(s *Session) {
	if !s.dirty {
		s.dirty = true
		c.dirty = append(c.dirty, s)
	}
	if c.idle {
		c.signalLocked()
	}
}

// writeLoop writes what is queued, and a keep-alive when nothing was for keepAlive. It returns nil when the connection
// is dead and everything is written.
func (c *Conn) writeLoop() error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	wrote := time.Now()
	for {
		buf, every, dead := c.takeOutput()
		if len(buf) > 0 {
			if err := accept.Write(c.nc, buf, c.writeTimeout); err != nil {
				return err
			}
			wrote = time.Now()
			c.giveBack(buf)
			continue
		}
		if dead {
			return nil
		}
		if every == 0 {
			<-c.wake
			continue
		}
		timer.Reset(time.Until(wrote.Add(every)))
		select {
		case <-c.wake:
		case <-timer.C:
			c.mu.Lock()
			if len(c.out) == 0 && c.state == connOpen {
				c.out = amqp.AppendFrame(c.out, 0, nil, nil)
			}
			c.mu.Unlock()
		}
	}
}

// takeOutput takes everything that is queued.
func (c *Conn) takeOutput() (buf []byte, keepAlive time.Duration, dead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callWhileIdleLocked()
	if c.idle {
		c.flushLocked() // else the read loop does it, with more to merge
	}
	buf = c.out
	if len(buf) > 0 {
		c.out, c.spare = c.spare[:0], nil
		c.pumpLocked()
		c.room.Broadcast()
	}
	return buf, c.keepAlive, c.state == connDead
}

// giveBack keeps a buffer that was written for the next take, unless a burst has made it large.
func (c *Conn) giveBack(buf []byte) {
	if cap(buf) > outKeep {
		return
	}
	c.mu.Lock()
	c.spare = buf[:0]
	c.mu.Unlock()
}

// writeTimeout is shorter once the connection is being closed, so that Shutdown is not held up by a stalled peer.
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
