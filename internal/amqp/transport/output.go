// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"math"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
	"overdue/internal/listener/socket"
)

const (
	softLimit     = 256 << 10 // bytes of queued output at which transfers wait
	hardLimit     = 4 << 20   // bytes at which the readers that cause them wait
	strangerLimit = 16 << 10  // likewise, for a peer that has shown no good token
	eager         = 32 << 10  // bytes that are written before the reader waits
	keptBuffer    = 512 << 10 // bytes of capacity up to which a buffer is reused
)

// output is the part of a Conn that writes. The owner's mutex guards it.
type output struct {
	MaxFrame uint32 // bytes, of the peer

	out     *buffer // encoded and not yet taken; nil = nothing
	rest    *buffer // what the socket has not taken of the reader's write; it goes first
	writing bool    // a goroutine writes, and checks out again before it stops
	err     error   // of a write
	wrote   time.Time
	socket  socket.Socket
	room    *sync.Cond
	run     func() // write, made once so that no start of a writer allocates it
}

// A buffer holds bytes on their way to a socket. It goes back to the pool when they are written, so
// an idle connection has none.
type buffer struct {
	b       []byte
	written int
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// free returns b to the pool, unless a burst has made it large.
func (b *buffer) free() {
	if cap(b.b) <= keptBuffer {
		b.b, b.written = b.b[:0], 0
		buffers.Put(b)
	}
}

// Queued returns the number of bytes that are not yet taken.
func (o *output) Queued() int {
	if o.out == nil {
		return 0
	}
	return len(o.out.b)
}

// Full reports whether transfers have to wait until the output is taken.
func (o *output) Full() bool { return o.Queued() >= softLimit }

// Overfull reports whether readers have to wait before they cause more output. limited is for a
// peer that has shown no good token.
func (c *Conn) Overfull(limited bool) bool {
	limit := hardLimit
	if limited {
		limit = strangerLimit
	}
	return c.State != Dead && c.Queued() > limit
}

// Eager reports whether so much is queued that it should not wait for the end of the input. A
// socket takes it then without another goroutine.
func (o *output) Eager() bool { return o.Queued() >= eager && !o.socket.Exists() }

// buffer returns the buffer to encode into.
func (o *output) buffer() *buffer {
	if o.out == nil {
		o.out = buffers.Get().(*buffer)
	}
	return o.out
}

// Put queues one frame. If a frame is too large for the peer because of an error description, the
// description is shortened.
func (c *Conn) Put(channel uint16, p amqp.Performative) {
	if c.State > Open {
		return // nothing may follow a close
	}
	out := c.buffer()
	start := len(out.b)
	out.b = amqp.AppendFrame(out.b, channel, p, nil)
	if size := len(out.b) - start; size > int(c.MaxFrame) {
		out.b = out.b[:start]
		short := amqp.Shortened(p)
		if short == nil {
			c.tooLarge(size)
			return
		}
		p = short
		out.b = amqp.AppendFrame(out.b, channel, p, nil)
	}
	c.queued(channel, p, 0)
}

// PutTransfer queues one transfer with as much of payload as fits into a frame. It sets t.More if
// some is left, and returns the number of bytes that are queued.
func (c *Conn) PutTransfer(channel uint16, t *amqp.Transfer, payload []byte) int {
	n := len(payload)
	if c.State > Open {
		return n
	}
	out := c.buffer()
	start := len(out.b)
	out.b = t.Append(amqp.BeginFrame(out.b, amqp.FrameAMQP, channel))
	if room := int(min(c.MaxFrame, math.MaxInt32)) - (len(out.b) - start); n > room {
		if room <= 0 {
			size := len(out.b) - start
			out.b = out.b[:start]
			c.tooLarge(size)
			return n
		}
		t.More, n = true, room // it is as long as before
		out.b = t.Append(out.b[:start+amqp.FrameHeaderSize])
	}
	out.b = amqp.EndFrame(append(out.b, payload[:n]...), start)
	c.queued(channel, t, n)
	return n
}

func (c *Conn) tooLarge(size int) {
	c.owner.Unsendable(amqp.Errorf(amqp.ErrCondFrameSizeTooSmall, "A frame of %d bytes is due and max-frame-size is %d.", size, c.MaxFrame))
}

// queued follows every frame.
func (c *Conn) queued(channel uint16, p amqp.Performative, payload int) {
	c.owner.Trace("out", channel, p, payload)
	if c.State == Handshaking || c.owner.Due() {
		c.Signal()
	}
}

// Signal has a goroutine write what is queued, unless one does already.
func (c *Conn) Signal() {
	if !c.writing && c.err == nil && c.NetConn != nil {
		c.writing = true
		go c.run() // until nothing is queued; each write has a time-out
	}
}

func (c *Conn) write() { c.writeQueued(time.Time{}) }

// Flush writes what is queued, unless another goroutine does. It unlocks the owner. The peer has to
// take all of it until then.
func (c *Conn) Flush(until time.Time) {
	mine := !c.writing && c.err == nil && c.Queued() > 0
	c.writing = c.writing || mine
	c.owner.Unlock()
	if mine {
		c.writeQueued(until)
	}
}

// writeQueued writes until nothing is queued. The caller has set writing.
func (c *Conn) writeQueued(until time.Time) {
	c.owner.Lock()
	for c.err == nil {
		c.owner.Prepare()
		buf := c.take()
		if buf == nil {
			break
		}
		c.owner.Unlock()
		err := c.writeAll(buf.b[buf.written:], until)
		buf.free()
		if err != nil {
			c.owner.Failed(err)
		}
		c.owner.Lock()
		c.err, c.wrote = err, time.Now()
	}
	c.writing = false
	c.room.Broadcast()
	c.owner.Unlock()
}

// take takes everything that is queued.
func (c *Conn) take() *buffer {
	if buf := c.rest; buf != nil {
		c.rest = nil
		return buf
	}
	if c.Queued() == 0 {
		return nil
	}
	buf := c.out
	c.out = nil
	c.owner.Taken()
	c.room.Broadcast()
	return buf
}

// writeAll writes b, in time. Over TLS, or a WebSocket, nothing can follow a partial write.
func (c *Conn) writeAll(b []byte, until time.Time) error {
	if c.socket.Exists() {
		b = b[c.socket.Write(b):]
	}
	if len(b) == 0 {
		return nil
	}
	timeout := c.writeTimeout
	if !until.IsZero() {
		timeout = func() time.Duration { return time.Until(until) }
	}
	err := accept.Write(c.NetConn, b, timeout)
	_ = c.NetConn.SetWriteDeadline(time.Time{}) // a past one would prevent writes of TLS itself; an error recurs
	return err
}

// writeTimeout is shorter during a close, so that a peer that stalls does not delay the end.
func (c *Conn) writeTimeout() time.Duration {
	c.owner.Lock()
	defer c.owner.Unlock()
	if c.State >= Closing {
		return min(c.cfg.WriteTimeout, c.cfg.CloseTimeout)
	}
	return c.cfg.WriteTimeout
}

// WriteDirect writes what is queued as far as the socket takes it at once, without the lock. A
// writer gets the rest. Only readers may call it.
func (c *Conn) WriteDirect() {
	if c.Queued() == 0 || c.writing {
		return
	}
	if !c.socket.Exists() || c.State != Open {
		c.Signal()
		return
	}
	c.writing = true
	buf := c.take()
	c.owner.Unlock()
	n := c.socket.Write(buf.b)
	c.owner.Lock()
	c.writing = false
	if n > 0 {
		c.wrote = time.Now()
	}
	if n == len(buf.b) {
		buf.free()
	} else {
		buf.written, c.rest = n, buf
	}
	if c.rest != nil || c.Queued() > 0 {
		c.Signal()
	}
	if c.State != Open {
		c.room.Broadcast()
	}
}

// Finish waits until what is queued is written, and returns the error of a write.
func (c *Conn) Finish() error {
	c.owner.Lock()
	defer c.owner.Unlock()
	for c.writing {
		c.room.Wait()
	}
	return c.err
}
