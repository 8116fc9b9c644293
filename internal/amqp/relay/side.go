// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"io"
	"net"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
)

type sideState uint8

const (
	sideHandshake sideState = iota // headers, SASL, opens
	sideOpen
	sideClosing // our close is sent, the peer's is awaited; nothing else is sent
	sideDead    // queues no more frames; the writer ends after flushing
)

// Indexes of the two sides, in a conn, a session and a link.
const (
	client   = 0
	upstream = 1
)

// A side is the relay's end of the connection to one peer. The mutex of the connection guards it,
// except in and dec, which belong to its read loop, and nc, which is constant once its goroutines
// run.
type side struct {
	c    *conn
	name string // in traces and errors
	at   int    // client or upstream
	nc   net.Conn
	in   *amqp.FrameReader
	dec  amqp.Decoder

	state       sideState
	idleTimeout time.Duration // advertised
	deadline    time.Time     // of the handshake, then of the answer to our close
	closeErr    *amqp.Error   // of our close
	saidClose   bool          // the peer has closed, and expects no more frames

	open       *amqp.Open // the peer's
	maxFrame   uint32     // the peer's
	channelMax uint16     // the peer's

	halves   map[uint16]*half // by the peer's channel
	channels []*half          // by ours
	buffered uint64           // bytes that came from the peer and wait to go on
	dirty    []*half          // halves that owe the peer a flow
	blocked  []*half          // halves whose transfers wait for room in the output

	output
}

func (s *side) init(c *conn, at int, name string, idleTimeout time.Duration) {
	s.c, s.at, s.name, s.idleTimeout = c, at, name, idleTimeout
	s.maxFrame = amqp.MinMaxFrameSize
	s.halves = make(map[uint16]*half)
	s.wake = make(chan struct{}, 1)
}

// connect sets the transport of the side.
func (s *side) connect(nc net.Conn) {
	s.nc = nc
	s.in = amqp.NewFrameReader((*sideReader)(s), s.c.cfg.MaxFrameSize)
	s.socket.Open(nc)
	s.wrote = time.Now()
}

func (s *side) other() *side { return &s.c.sides[1-s.at] }

// sideReader is the input of a side's frame reader. At each Read, the frames of the previous read
// have been handled. So Read first writes their results, or hands them to the writers, all at
// once.
type sideReader side

// Read waits for input until the deadline of the side's state.
func (r *sideReader) Read(p []byte) (int, error) {
	s := (*side)(r)
	var n int
	var err error
	if s.beforeRead() == sideHandshake || !s.socket.Exists() {
		n, err = s.nc.Read(p) // a wrapper may hold the bytes that identified the protocol
	} else {
		n, err = s.socket.Read(p)
	}
	s.c.mu.Lock()
	s.c.active++
	s.c.unlock()
	if n > 0 {
		err = nil // the next read returns it again
	}
	if s.at == client {
		if spent := s.c.quota.Spend(n); spent != nil {
			return 0, amqp.LimitExceeded(spent)
		}
	}
	return n, err
}

// beforeRead rests the read loop: it flushes the results and waits for room.
func (s *side) beforeRead() sideState {
	c := s.c
	c.mu.Lock()
	bufs := c.restLocked()
	c.unlock()
	for i, buf := range bufs {
		if buf != nil {
			buf.written = c.sides[i].socket.Write(buf.b)
		}
	}
	c.mu.Lock()
	defer c.unlock()
	for i, buf := range bufs {
		if buf != nil {
			c.sides[i].wroteDirectLocked(buf)
		}
	}
	c.doneLocked() // flush the transfers that had waited for room
	// This peer asks faster than a peer takes the answers. The writers have deadlines, so the
	// wait ends.
	for s.state != sideDead && (s.overfullLocked() || s.other().overfullLocked()) {
		c.room.Wait()
	}
	s.waitUnbufferedLocked()
	deadline := s.deadline
	if s.state == sideOpen {
		// Start the timeout now: while waiting for room, the relay could not hear the peer.
		deadline = time.Now().Add(idleTimeoutFactor * s.idleTimeout)
	}
	_ = s.nc.SetReadDeadline(deadline) // a failure shows in the read
	return s.state
}

// waitUnbufferedLocked waits while too many bytes from this peer are buffered. Windows bound one
// session; this bounds all sessions together. The wait has a limit while nothing goes on, because
// each of two peers that do not read may wait for the other.
func (s *side) waitUnbufferedLocked() {
	c := s.c
	for s.buffered > c.cfg.MaxBuffered && s.state == sideOpen {
		before, expired := s.buffered, false
		timer := time.AfterFunc(c.cfg.WriteTimeout, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			expired = true
			c.room.Broadcast()
		})
		for s.buffered > c.cfg.MaxBuffered && s.state == sideOpen && !expired {
			c.room.Wait()
		}
		timer.Stop()
		if expired && s.buffered >= before {
			c.failLocked(s, amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "More than %d bytes wait to go on.", c.cfg.MaxBuffered))
			return
		}
	}
}

// overfullLocked reports whether the output is so long that the read loops that add to it must
// wait.
func (s *side) overfullLocked() bool {
	limit := outHardLimit
	if s.c.quota.Limited() {
		limit = outStrangerLimit
	}
	return s.state != sideDead && s.queuedLen() > limit
}

// readLoop handles the peer's frames until the side ends. It returns nil when the peer has closed
// without an error, or answered our close.
func (s *side) readLoop() error {
	for {
		f, err := s.in.Next()
		if err != nil {
			return s.readError(err)
		}
		if f.Type != amqp.FrameAMQP {
			return amqp.Errorf(amqp.ErrCondConnectionFramingError, "Frame of type %d after open.", f.Type)
		}
		if len(f.Body) == 0 { // keep-alive
			s.dec = amqp.Decoder{} // the last decoded values keep a buffer in memory
			continue
		}
		p, payload, err := s.dec.Decode(f.Body)
		if err != nil {
			return err
		}
		s.trace("in", f.Channel, p, len(payload))
		if cl, ok := p.(*amqp.Close); ok {
			return s.closed(cl)
		}
		if err := s.dispatch(f.Channel, p, payload); err != nil {
			return err
		}
	}
}

// closed handles the peer's close, the last frame it sends.
func (s *side) closed(cl *amqp.Close) error {
	s.c.mu.Lock()
	defer s.c.unlock()
	if s.state == sideOpen {
		s.putLocked(0, &amqp.Close{}, nil)
	}
	s.state, s.saidClose = sideDead, true
	if s.closeErr == nil && cl.Error != nil {
		return &peerClosed{cl.Error}
	}
	return nil
}

// dispatch hands one performative to its session.
func (s *side) dispatch(ch uint16, p amqp.Performative, payload []byte) error {
	c := s.c
	c.mu.Lock()
	defer c.unlock()
	if s.state != sideOpen {
		return nil // the frame crossed our close
	}
	if b, ok := p.(*amqp.Begin); ok {
		return s.onBeginLocked(ch, b)
	}
	if s.at == upstream && c.ownSession && ch == c.ownPeerChannel && c.ownBegun {
		c.ownFrameLocked(p, payload)
		return nil
	}
	h := s.halves[ch]
	if _, detach := p.(*amqp.Detach); h == nil && detach {
		return nil // the Python SDK detaches its links behind its end (Session.end of azure/servicebus/_pyamqp)
	}
	if h == nil {
		return amqp.Errorf(amqp.ErrCondNotAllowed, "There is no session on channel %d.", ch)
	}
	// Until the client has our end, it waits for the answers to what it sent before its own.
	if _, end := p.(*amqp.End); !end && h.s.halves[client].sentEnd {
		return nil
	}
	switch p := p.(type) {
	case *amqp.Transfer:
		h.onTransferLocked(p, payload)
	case *amqp.Disposition:
		h.onDispositionLocked(p)
	case *amqp.Flow:
		h.onFlowLocked(p)
	case *amqp.Attach:
		h.onAttachLocked(p)
	case *amqp.Detach:
		h.onDetachLocked(p)
	case *amqp.End:
		h.onEndLocked(p)
	default:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "A connection that is open cannot take %T.", p)
	}
	return nil
}

// Errors that end a side.
var (
	errHungUp          = errors.New("peer hung up")                    // without a close performative
	errSilent          = errors.New("peer was silent for too long")    // not even a keep-alive
	errCloseUnanswered = errors.New("peer did not answer close")       // within Config.CloseTimeout
	errHandshakeTime   = errors.New("handshake took too long")         // Config.HandshakeTimeout
	errCut             = errors.New("the relay closed the connection") // Close, or the end of Shutdown's context
)

// peerClosed is a close with an error.
type peerClosed struct{ err *amqp.Error }

func (p *peerClosed) Error() string { return "peer closed it: " + p.err.Error() }
func (p *peerClosed) Unwrap() error { return p.err }

// readError maps a read error to the reason for the end of the side.
func (s *side) readError(err error) error {
	s.c.mu.Lock()
	defer s.c.unlock()
	timeout := accept.IsTimeout(err)
	switch {
	case s.c.quota.Why() != nil:
		return s.c.quota.Why()
	case s.c.wasCut:
		return errCut
	case s.state == sideClosing && timeout:
		return errCloseUnanswered
	case s.state == sideHandshake && timeout:
		return errHandshakeTime
	case timeout:
		return errSilent
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errHungUp
	}
	return err
}

// written is the result of a side's writer.
type written struct {
	side *side
	err  error
}

// unwritable handles a failed write. It still reads the peer's remaining input: a client that
// closes without waiting for the answer, such as the Python SDK, has not failed. It expects
// nothing from a peer that stalls.
func (s *side) unwritable(stalled bool) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.state = sideDead // no read loop may wait for room in an output without a writer
	s.deadline = time.Now().Add(s.c.cfg.CloseTimeout)
	s.c.room.Broadcast()
	if stalled {
		s.nc.Close() // which the read loop notices
		return
	}
	_ = s.nc.SetReadDeadline(s.deadline) // for a pending read; a failure shows in it
}
