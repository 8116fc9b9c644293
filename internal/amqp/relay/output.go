// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strconv"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
	"overdue/internal/listener/socket"
)

// output is the writing half of a side. The relay encodes everything into out under the
// connection's mutex. One goroutine at a time takes bytes out and writes them. It is a read loop
// that comes to rest, which writes as much as the socket takes at once, or the side's writer, which
// may block. Bytes that are queued meanwhile go out with the next write.
type output struct {
	out     *outBuffer    // encoded and not yet taken; nil = nothing
	rest    *outBuffer    // the remainder of a read loop's write; the writer sends it first
	writing bool          // a goroutine is writing the bytes that it took
	wake    chan struct{} // one token: the writer has work
	socket  socket.Socket

	keepAlive time.Duration // between our frames; 0 = the peer asks for none
	wrote     time.Time     // when the last of them was written
	transfer  amqp.Transfer // encoded by every transfer, so that none allocates it
	flow      amqp.Flow
	ack       amqp.Disposition
}

// An outBuffer holds bytes on their way to a socket. It goes back to the pool when they are
// written, so an idle connection has none.
type outBuffer struct {
	b       []byte
	written int
}

var outBuffers = sync.Pool{New: func() any { return new(outBuffer) }}

// free returns b to the pool, unless a burst has made it large.
func (b *outBuffer) free() {
	if cap(b.b) <= outKeep {
		b.b, b.written = b.b[:0], 0
		outBuffers.Put(b)
	}
}

// queuedLen returns the number of bytes not yet taken.
func (o *output) queuedLen() int {
	if o.out == nil {
		return 0
	}
	return len(o.out.b)
}

// roomLocked returns the buffer to encode into.
func (o *output) roomLocked() *outBuffer {
	if o.out == nil {
		o.out = outBuffers.Get().(*outBuffer)
	}
	return o.out
}

// signalLocked wakes the writer.
func (o *output) signalLocked() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// queuedLocked is called after each append to out. It wakes the writer if no read loop is active.
// An active read loop writes, or wakes the writer, when it comes to rest, so the results of many
// frames go out in one write. A read loop rests after one read's worth of input, so its output
// stays small.
func (s *side) queuedLocked() {
	if s.c.active == 0 || s.queuedLen() >= outEager && !s.socket.Exists() || s.state != sideOpen {
		s.signalLocked()
	}
}

// putLocked queues one frame. If it is too large for the peer, putLocked shortens the error in
// it. If there is none to shorten, it ends the connection, because the peer can never receive the
// frame.
func (s *side) putLocked(ch uint16, p amqp.Performative, payload []byte) {
	if s.state != sideOpen && s.state != sideHandshake {
		return // after close nothing may follow
	}
	if s.at == client && s.c.names != nil {
		s.c.names.frame(p)
	}
	out := s.roomLocked()
	start := len(out.b)
	out.b = amqp.AppendFrame(out.b, ch, p, payload)
	if size := len(out.b) - start; size > int(s.maxFrame) {
		out.b = out.b[:start]
		short := amqp.Shortened(p)
		if short == nil {
			s.c.failLocked(s, amqp.Errorf(amqp.ErrCondFrameSizeTooSmall,
				"A frame of %d bytes is due and max-frame-size is %d.", size, s.maxFrame))
			return
		}
		p = short
		out.b = amqp.AppendFrame(out.b, ch, p, nil)
	}
	s.trace("out", ch, p, len(payload))
	s.queuedLocked()
}

// writeLoop writes the queued output, and a keep-alive after keepAlive without any. It returns
// nil when the side is dead and everything is written.
func (s *side) writeLoop() error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		t := s.takeOutput()
		if t.buf != nil {
			rest := t.buf.b[t.buf.written:]
			if s.socket.Exists() {
				rest = rest[s.socket.Write(rest):]
			}
			if err := accept.Write(s.nc, rest, s.writeTimeout); err != nil {
				return err
			}
			s.wroteAll(t.buf)
			continue
		}
		if t.over {
			return nil
		}
		if t.keepAlive == 0 {
			<-s.wake
			continue
		}
		timer.Reset(time.Until(t.wrote.Add(t.keepAlive)))
		select {
		case <-s.wake:
		case <-timer.C:
			s.c.mu.Lock()
			if s.queuedLen() == 0 && s.state == sideOpen && time.Since(s.wrote) >= s.keepAlive {
				out := s.roomLocked()
				out.b = amqp.AppendFrame(out.b, 0, nil, nil)
			}
			s.c.unlock()
		}
	}
}

// taken is the next work of a side's writer.
type taken struct {
	buf       *outBuffer // to write; nil = nothing now
	over      bool       // there is nothing to write, and never will be
	keepAlive time.Duration
	wrote     time.Time
}

// takeOutput takes everything that is queued, unless a read loop writes: it wakes the writer when
// there is more.
func (s *side) takeOutput() taken {
	s.c.mu.Lock()
	defer s.c.unlock()
	t := taken{wrote: s.wrote}
	if s.state == sideOpen { // after our close there are no keep-alives, so none must wake the writer
		t.keepAlive = s.keepAlive
	}
	switch {
	case s.writing:
	case s.rest != nil:
		t.buf, s.rest = s.rest, nil
		s.writing = true
	case s.queuedLen() > 0:
		t.buf = s.takeLocked()
		if s.c.active == 0 {
			s.c.flushLocked()
		}
	default:
		t.over = s.state == sideDead
	}
	return t
}

// takeLocked takes everything that is queued, and resumes transfers that waited for room.
func (s *side) takeLocked() (buf *outBuffer) {
	buf, s.out = s.out, nil
	s.writing = true
	waiting := s.blocked
	s.blocked = nil
	for _, h := range waiting {
		h.isBlocked = false
		h.other().pumpLocked()
	}
	s.c.room.Broadcast()
	return buf
}

// takeDirectLocked takes the queued output of a side whose socket may accept it at once.
func (s *side) takeDirectLocked() *outBuffer {
	if !s.socket.Exists() || s.writing || s.rest != nil || s.state != sideOpen {
		s.signalLocked()
		return nil
	}
	return s.takeLocked()
}

// wroteDirectLocked handles the result of a read loop's write of buf.
func (s *side) wroteDirectLocked(buf *outBuffer) {
	s.writing = false
	if buf.written > 0 {
		s.wrote = time.Now()
	}
	if buf.written < len(buf.b) {
		s.rest = buf
	} else {
		buf.free()
	}
	if s.rest != nil || s.queuedLen() > 0 || s.state != sideOpen {
		s.signalLocked()
	}
}

// wroteAll releases buf after the writer has written it.
func (s *side) wroteAll(buf *outBuffer) {
	buf.free()
	now := time.Now()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.writing, s.wrote = false, now
}

// writeTimeout is shorter once the connection is being closed, so that nothing
// is held up by a stalled peer.
func (s *side) writeTimeout() time.Duration {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.state == sideClosing || s.state == sideDead {
		return min(s.c.cfg.WriteTimeout, s.c.cfg.CloseTimeout)
	}
	return s.c.cfg.WriteTimeout
}

func (s *side) putHeader(proto [8]byte) {
	s.c.mu.Lock()
	defer s.c.unlock()
	out := s.roomLocked()
	out.b = append(out.b, proto[:]...)
	s.queuedLocked()
}

func (s *side) putSASL(p amqp.Performative) {
	s.c.mu.Lock()
	defer s.c.unlock()
	out := s.roomLocked()
	out.b = amqp.AppendSASLFrame(out.b, p)
	s.trace("out", 0, p, 0)
	s.queuedLocked()
}

// trace calls Config.Trace with one frame.
func (s *side) trace(dir string, ch uint16, p amqp.Performative, payload int) {
	if s.c.cfg.Trace != nil {
		s.c.cfg.Trace(s.name, dir, "["+strconv.FormatUint(s.c.id, 10)+"/"+strconv.Itoa(int(ch))+"] "+amqp.Trace(p, payload))
	}
}
