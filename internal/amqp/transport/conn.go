// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
)

// Reasons for the end of a connection.
var (
	ErrHungUp          = errors.New("peer hung up")                 // without a close performative
	ErrSilent          = errors.New("peer was silent for too long") // not even a keep-alive came
	ErrCloseUnanswered = errors.New("peer did not answer close")
	ErrHandshakeTime   = errors.New("the handshake took too long")
)

// PeerClosed is the peer's close with an error, or its close in place of an open.
type PeerClosed struct{ Reason *amqp.Error }

func (p *PeerClosed) Error() string {
	if p.Reason == nil {
		return "peer closed it"
	}
	return "peer closed it: " + p.Reason.Error()
}

// Unwrap returns the peer's error.
func (p *PeerClosed) Unwrap() error {
	if p.Reason == nil {
		return nil
	}
	return p.Reason
}

// An Owner is what differs between the users of a Conn. Its Lock is the mutex that guards the Conn.
type Owner interface {
	sync.Locker
	// Rest is called by the reader before it waits for input, without the lock: all input so far has
	// been handled.
	Rest()
	// Resume is called by the reader with the number of bytes that have come, without the lock. An
	// error ends the connection.
	Resume(n int) error
	// Due reports whether a frame that was just queued has to be written by the writer. Otherwise the
	// owner writes it soon.
	Due() bool
	// Prepare completes the output before the writer takes it, and may release the lock meanwhile.
	Prepare()
	// Taken is called when the output has been taken, so that there is room for more.
	Taken()
	// Unsendable is called for a frame that is larger than the peer's max-frame-size.
	Unsendable(e *amqp.Error)
	// Failed is called once, without the lock, when a write has failed. Nothing is written any more.
	Failed(err error)
	// Why returns the owner's own reason for an error of a read, nil if it has none.
	Why(err error) error
	// Trace gets every performative; dir is "in" or "out".
	Trace(dir string, channel uint16, p amqp.Performative, payload int)
}

// Config has the limits of a Conn.
type Config struct {
	MaxFrameSize     uint32        // bytes, of the peer's frames
	HandshakeTimeout time.Duration // until Opened; 0 = the owner sets deadlines itself
	WriteTimeout     time.Duration // in which the peer has to take 64 KiB
	CloseTimeout     time.Duration // in which the peer has to answer our close
	Silence          time.Duration // the longest that the peer may be silent
}

// State is the state of a connection.
type State uint8

// The states, in order.
const (
	Handshaking State = iota // headers, SASL, opens
	Open
	Closing // our close is sent, the peer's is awaited; nothing else is sent
	Dead    // nothing more is queued; what is queued is written
)

// A Conn is this end of a connection. The owner's mutex guards the exported fields.
type Conn struct {
	output
	keepAlive

	NetConn  net.Conn // nil until Connect
	State    State
	Deadline time.Time   // of the answer to our close, and of the peer's last bytes
	CloseErr *amqp.Error // of our close
	Answered bool        // the peer has closed, and expects no more frames
	Peer     *amqp.Open  // its open, constant once it has come

	owner Owner
	cfg   Config
	in    *amqp.FrameReader // the reader's, like the fields below
	dec   amqp.Decoder
	raw   bool // it reads from the socket: no wrapper holds bytes any more
}

// Connect sets the transport. room is signalled when the output becomes shorter, a write ends or
// the state changes; it has the owner's mutex.
func (c *Conn) Connect(nc net.Conn, owner Owner, room *sync.Cond, cfg Config) {
	c.NetConn, c.owner, c.cfg = nc, owner, cfg
	c.in = amqp.NewFrameReader((*reader)(c), cfg.MaxFrameSize)
	c.room = room
	c.run = c.write
	c.MaxFrame = amqp.MinMaxFrameSize
	c.socket.Open(nc)
	if cfg.HandshakeTimeout > 0 {
		_ = nc.SetReadDeadline(time.Now().Add(cfg.HandshakeTimeout)) // a failure shows in the read
	}
}

// Ready reports whether the reader has the next frame already.
func (c *Conn) Ready() bool { return c.in.Ready() }

// ReadLoop passes each frame to dispatch. It returns when dispatch has had the peer's close or
// returns an error, or when a read fails.
func (c *Conn) ReadLoop(dispatch func(channel uint16, p amqp.Performative, payload []byte) error) error {
	for {
		f, err := c.in.Next()
		if err != nil {
			return c.explain(err)
		}
		if f.Type != amqp.FrameAMQP {
			return amqp.Errorf(amqp.ErrCondConnectionFramingError, "Frame of type %d after open.", f.Type)
		}
		if len(f.Body) == 0 { // keep-alive
			c.dec = amqp.Decoder{} // the last decoded values keep a buffer in memory
			continue
		}
		p, payload, err := c.dec.Decode(f.Body)
		if err != nil {
			return err
		}
		c.owner.Trace("in", f.Channel, p, len(payload))
		err = dispatch(f.Channel, p, payload)
		if _, over := p.(*amqp.Close); over || err != nil {
			return err
		}
	}
}

// Closed answers the peer's close, the last frame that it sends.
func (c *Conn) Closed(cl *amqp.Close) error {
	c.owner.Lock()
	defer c.owner.Unlock()
	if c.State == Open {
		c.Put(0, &amqp.Close{})
	}
	c.State, c.Answered = Dead, true
	if c.CloseErr == nil && cl.Error != nil {
		return &PeerClosed{cl.Error}
	}
	return nil
}

// Close closes the connection with e, or without an error if e is nil. It does not wait for the
// peer's answer.
func (c *Conn) Close(e *amqp.Error) {
	switch c.State {
	case Handshaking: // a close may not come before the open
		c.CloseErr, c.State = e, Dead
		if c.NetConn != nil {
			c.NetConn.Close()
		}
	case Open:
		c.CloseErr = e
		c.Put(0, &amqp.Close{Error: e})
		c.State = Closing
		c.Deadline = time.Now().Add(c.cfg.CloseTimeout)
		// A stalled read or write must not delay the end. Failures show in the read and in the write.
		_ = c.NetConn.SetDeadline(c.Deadline)
	}
	c.changed()
}

// End follows the end of the reader: nothing more is queued. If err is the peer's fault and the
// connection can still carry a close, the peer gets one. Then linger says that the input has to be
// drained until the peer has read it: closing a socket with unread input would discard it.
func (c *Conn) End(err error) (linger bool) {
	if c.State == Open {
		var e *amqp.Error
		if e, linger = closeError(err); e != nil {
			c.CloseErr = e
			c.Put(0, &amqp.Close{Error: e})
		}
	}
	c.Die()
	if c.NetConn != nil {
		_ = c.NetConn.SetWriteDeadline(c.Deadline) // for a stalled write; a failure shows in the write
	}
	return linger
}

// Die has the queued output written, and nothing else.
func (c *Conn) Die() {
	c.State = Dead
	c.Deadline = time.Now().Add(c.cfg.CloseTimeout)
	c.changed()
}

// changed wakes everything that waits for the state.
func (c *Conn) changed() {
	if c.NetConn == nil {
		return
	}
	if c.State >= Closing {
		c.stop()
	}
	if c.Queued() > 0 {
		c.Signal()
	}
	c.room.Broadcast()
}

// closeError returns the error of the close for a connection that ends because of err, nil if err
// is not the peer's fault.
func closeError(err error) (e *amqp.Error, linger bool) {
	var closed *PeerClosed
	switch {
	case errors.As(err, &closed):
		return nil, false
	case errors.Is(err, ErrSilent):
		return &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded, Description: "Nothing was received within the idle time-out."}, false
	case errors.As(err, &e), errors.Is(err, amqp.ErrFraming), errors.Is(err, amqp.ErrMalformed):
		return amqp.AsError(err), true
	}
	return nil, false
}

// DrainInput reads until the peer hangs up, at most until the deadline.
func (c *Conn) DrainInput() {
	c.owner.Lock()
	deadline := c.Deadline
	c.owner.Unlock()
	if err := c.NetConn.SetReadDeadline(deadline); err != nil {
		return // closed already
	}
	// The rest of the input does not matter, nor does its error.
	_, _ = io.Copy(io.Discard, c.NetConn)
}

// explain translates the error of a read.
func (c *Conn) explain(err error) error {
	c.owner.Lock()
	defer c.owner.Unlock()
	why, timeout := c.owner.Why(err), accept.IsTimeout(err)
	switch {
	case why != nil:
		return why
	case timeout && c.State == Handshaking:
		return ErrHandshakeTime
	case timeout && c.State == Open:
		return ErrSilent
	case timeout:
		return ErrCloseUnanswered
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrHungUp
	}
	return err
}

// reader is the input of the frame reader. At each Read, the frames of the previous one have been
// handled.
type reader Conn

func (r *reader) Read(p []byte) (n int, err error) {
	c := (*Conn)(r)
	c.owner.Rest()
	c.waits(true)
	if c.raw {
		n, err = c.socket.Read(p)
	} else {
		n, err = c.NetConn.Read(p) // a wrapper may hold the bytes that identified the protocol
	}
	c.waits(false)
	if spent := c.owner.Resume(n); spent != nil {
		return 0, spent
	}
	if n > 0 {
		err = nil // the next read returns it again
	}
	return n, err
}

// IdleMillis is an idle time-out as an open states it.
func IdleMillis(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), math.MaxUint32)) }

// TraceLine is one line of a trace of frames.
func TraceLine(conn uint64, channel uint16, p amqp.Performative, payload int) string {
	return fmt.Sprintf("[%d/%d] %s", conn, channel, amqp.Trace(p, payload))
}

// SilenceFactor is how many of the time-outs that we state a peer may be silent. Part 2 section
// 4.5: the advertised timeout should be half of the enforced one.
const SilenceFactor = 2

// leastTick bounds the timer, so that it never spins even if a clock jumps.
const leastTick = time.Millisecond

// keepAlive sends an empty frame after interval without output, and ends the wait of the reader for
// a peer that was silent for too long. The timer is a wake-up, armed for the earlier of both.
type keepAlive struct {
	interval time.Duration // 0 = the peer asks for none
	timer    *time.Timer   // nil until Opened
	began    time.Time
	waiting  atomic.Int64 // since when the reader waits for input, counted from began; 0 = it does not
}

// waits notes that the reader waits for input, or that it does not. While it waits for room in an
// output instead, it cannot hear the peer.
func (k *keepAlive) waits(yes bool) {
	var since int64
	if yes && !k.began.IsZero() {
		since = max(int64(time.Since(k.began)), 1)
	}
	k.waiting.Store(since)
}

// Opened applies the peer's open, after ours has been queued.
func (c *Conn) Opened() {
	c.MaxFrame = c.Peer.MaxFrameSize
	// Half of the time-out, so that one late keep-alive is not the end.
	c.interval = time.Duration(c.Peer.IdleTimeout) * time.Millisecond / 2
	c.State = Open
	c.raw = c.socket.Exists()
	_ = c.NetConn.SetReadDeadline(time.Time{}) // a failure shows in the read
	c.began = time.Now()
	c.wrote = c.began
	first := c.cfg.Silence
	if c.interval > 0 {
		first = min(first, c.interval)
	}
	c.timer = time.AfterFunc(first, c.tick)
}

func (k *keepAlive) stop() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

func (c *Conn) tick() {
	c.owner.Lock()
	defer c.owner.Unlock()
	if c.State != Open {
		return
	}
	next := c.cfg.Silence
	now := time.Now()
	if since := c.waiting.Load(); since > 0 {
		next -= now.Sub(c.began) - time.Duration(since)
	}
	if next <= 0 {
		_ = c.NetConn.SetReadDeadline(time.Unix(1, 0)) // the read returns; a failure shows in it
		return
	}
	if c.interval > 0 {
		left := c.interval - now.Sub(c.wrote)
		if left <= 0 {
			left = c.interval
			if c.Queued() == 0 && !c.writing {
				out := c.buffer()
				out.b = amqp.AppendFrame(out.b, 0, nil, nil)
				c.Signal()
			}
		}
		next = min(next, left)
	}
	c.timer.Reset(max(next, leastTick))
}
