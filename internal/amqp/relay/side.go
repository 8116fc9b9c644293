// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"net"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
	"overdue/internal/listener/accept"
)

// Indexes of the two sides, in a conn, a session and a link.
const (
	client   = 0
	upstream = 1
)

// A side is the relay's end of the connection to one peer. The mutex of the connection guards it.
type side struct {
	transport.Conn

	c    *conn
	name string // in traces and errors
	at   int    // client or upstream

	halves   map[uint16]*half // by the peer's channel
	channels []*half          // by ours
	buffered uint64           // bytes that came from the peer and wait to go on
	dirty    []*half          // halves that owe the peer a flow
	blocked  []*half          // halves whose transfers wait for room in the output

	transfer amqp.Transfer // encoded by every transfer, so that none allocates it
	flow     amqp.Flow
	ack      amqp.Disposition
}

// connect sets the transport of the side. idleTimeout is what the relay states to the peer.
func (s *side) connect(nc net.Conn, idleTimeout time.Duration) {
	s.Connect(nc, (*owner)(s), s.c.room, transport.Config{
		MaxFrameSize:     s.c.cfg.MaxFrameSize,
		HandshakeTimeout: s.c.cfg.HandshakeTimeout,
		WriteTimeout:     s.c.cfg.WriteTimeout,
		CloseTimeout:     s.c.cfg.CloseTimeout,
		Silence:          transport.SilenceFactor * idleTimeout,
	})
}

func (s *side) other() *side { return &s.c.sides[1-s.at] }

// putLocked queues one frame.
func (s *side) putLocked(ch uint16, p amqp.Performative) {
	if s.at == client && s.c.names != nil {
		s.c.names.frame(p)
	}
	s.Put(ch, p)
}

// owner is a side for its transport.
type owner side

func (o *owner) Lock()   { o.c.mu.Lock() }
func (o *owner) Unlock() { o.c.unlock() }

// Rest flushes the results of the frames that one read has brought, all at once, and waits for
// room.
func (o *owner) Rest() {
	s, c := (*side)(o), o.c
	c.mu.Lock()
	defer c.unlock()
	c.payLocked()
	c.active--
	for i := range c.sides {
		c.sides[i].WriteDirect()
	}
	c.doneLocked() // flush the transfers that had waited for room
	// This peer asks faster than a peer takes the answers. The writers have deadlines, so the
	// wait ends.
	for s.State != transport.Dead && (s.overfullLocked() || s.other().overfullLocked()) {
		c.room.Wait()
	}
	s.waitUnbufferedLocked()
}

// Resume ends the rest.
func (o *owner) Resume(n int) error {
	o.c.mu.Lock()
	o.c.active++
	o.c.unlock()
	if o.at == client {
		if spent := o.c.quota.Spend(n); spent != nil {
			return amqp.LimitExceeded(spent)
		}
	}
	return nil
}

// Due reports whether no read loop is active. An active one writes, or wakes a writer, when it
// comes to rest, so the results of many frames go out in one write. A read loop rests after one
// read's worth of input, so its output stays small.
func (o *owner) Due() bool { return o.c.active == 0 || o.Eager() }

// Prepare queues the owed frames.
func (o *owner) Prepare() {
	if o.c.active == 0 {
		o.c.payLocked()
	}
}

// Taken resumes transfers that waited for room.
func (o *owner) Taken() {
	if own := o.c.auth.own; own != nil && o.at == upstream {
		own.TakenLocked()
	}
	waiting := o.blocked
	o.blocked = nil
	for _, h := range waiting {
		h.isBlocked = false
		h.other().pumpLocked()
	}
}

// Unsendable ends the connection, because the peer can never receive the frame.
func (o *owner) Unsendable(e *amqp.Error) { o.c.failLocked((*side)(o), e) }

// Failed still has the peer's remaining input read: a client that closes without waiting for the
// answer, such as the Python SDK, has not failed. It expects nothing from a peer that stalls.
func (o *owner) Failed(err error) {
	stalled := accept.IsTimeout(err)
	o.c.mu.Lock()
	o.Die() // no read loop may wait for room in an output that is never written
	deadline := o.Deadline
	o.c.unlock()
	if stalled {
		o.NetConn.Close() // which the read loop notices
		return
	}
	_ = o.NetConn.SetReadDeadline(deadline) // for a pending read; a failure shows in it
}

// Why returns the reason of this side.
func (o *owner) Why(error) error {
	if why := o.c.quota.Why(); why != nil {
		return why
	}
	if o.c.wasCut {
		return errCut
	}
	return nil
}

// Trace calls Config.Trace with one frame.
func (o *owner) Trace(dir string, ch uint16, p amqp.Performative, payload int) {
	if o.c.cfg.Trace != nil {
		o.c.cfg.Trace(o.name, dir, transport.TraceLine(o.c.id, ch, p, payload))
	}
}

// waitUnbufferedLocked waits while too many bytes from this peer are buffered. Windows bound one
// session; this bounds all sessions together. The wait has a limit while nothing goes on, because
// each of two peers that do not read may wait for the other.
func (s *side) waitUnbufferedLocked() {
	c := s.c
	for s.buffered > c.cfg.MaxBuffered && s.State == transport.Open {
		before, expired := s.buffered, false
		timer := time.AfterFunc(c.cfg.WriteTimeout, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			expired = true
			c.room.Broadcast()
		})
		for s.buffered > c.cfg.MaxBuffered && s.State == transport.Open && !expired {
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
func (s *side) overfullLocked() bool { return s.Overfull(s.c.quota.Limited()) }

// dispatch hands one performative to its session.
func (s *side) dispatch(ch uint16, p amqp.Performative, payload []byte) error {
	if cl, ok := p.(*amqp.Close); ok {
		return s.Closed(cl)
	}
	c := s.c
	c.mu.Lock()
	defer c.unlock()
	if s.State != transport.Open {
		return nil // the frame crossed our close
	}
	if own := c.auth.own; own != nil && s.at == upstream && own.Serves(ch, p) {
		return own.TakeLocked(ch, p, payload)
	}
	if b, ok := p.(*amqp.Begin); ok {
		return s.onBeginLocked(ch, b)
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

// errCut is why a connection ended that Close, or the end of Shutdown's context, has cut.
var errCut = errors.New("the relay closed the connection")
