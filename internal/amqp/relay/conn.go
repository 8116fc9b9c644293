// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
	"overdue/internal/listener/accept"
)

// A conn is one client connection and its upstream connection.
type conn struct {
	r      *Relay
	cfg    *Config
	id     uint64
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	quota  *accept.Quota // its place among the unauthenticated; nil: it needs no token

	mu    sync.Mutex
	room  *sync.Cond // an output became shorter, or a side is over
	sides [2]side    // by client and upstream

	active   int // read loops that are handling input; the last to rest flushes
	links    int // that exist
	calls    []call
	spare    []call // an emptied list, for reuse
	draining bool
	wasCut   bool
	cause    error // why the first side ended

	names     *naming       // of the namespace, from the open of the client on
	saslInit  amqp.SASLInit // of the client, until upstream has it
	reached   bool          // upstream has been dialled
	unreached error         // the error of the dial

	nodes map[string]*nodeLinks // by address

	replies    []*link                          // links that carry responses of upstream management nodes
	requests   map[requestName]*pendingDelivery // requests sent upstream whose handlers await the response
	responding int                              // responses that handlers are checking
	tags       uint32                           // of the relay's own responses

	// The relay's own session upstream, over which it puts its tokens.
	ownSession bool
	auth       auth
}

func newConn(r *Relay, nc net.Conn, id uint64) *conn {
	c := &conn{r: r, cfg: &r.cfg, id: id, active: 1, quota: r.unauthenticated.EnterOrJoin(nc), ownSession: r.cfg.Tokens != nil}
	c.ctx, c.cancel = context.WithCancel(r.ctx)
	c.room = sync.NewCond(&c.mu)
	for at, name := range [...]string{client: "client", upstream: "upstream"} {
		s := &c.sides[at]
		s.c, s.at, s.name, s.halves = c, at, name, make(map[uint16]*half)
	}
	c.sides[client].connect(nc, r.cfg.IdleTimeout)
	return c
}

// unlock releases the mutex and makes the pending calls, which may lock it again.
func (c *conn) unlock() {
	calls := c.calls
	if len(calls) == 0 {
		c.mu.Unlock()
		return
	}
	c.calls, c.spare = c.spare[:0], nil
	c.mu.Unlock()
	for _, call := range calls {
		call.do()
	}
	if cap(calls) > maxSpareCalls {
		return
	}
	clear(calls)
	c.mu.Lock()
	c.spare = calls
	c.mu.Unlock()
}

// A call is a function, or a handler with its outcome, to call without the lock. Every watched
// delivery needs the latter, so it needs no closure.
type call struct {
	f        func()
	settled  *pendingDelivery
	outcome  amqp.DeliveryState
	answerer Answerer
}

// maxSpareCalls bounds the capacity that a connection keeps for calls.
const maxSpareCalls = 64

func (c *call) do() {
	if c.settled != nil {
		c.settled.handler.Settled(c.outcome, c.answerer)
		return
	}
	c.f()
}

// callLocked schedules f for when the lock is released.
func (c *conn) callLocked(f func()) { c.calls = append(c.calls, call{f: f}) }

// callSettledLocked calls the handler of k with its outcome when the lock is released.
func (c *conn) callSettledLocked(k *pendingDelivery, outcome amqp.DeliveryState, answerer Answerer) {
	c.calls = append(c.calls, call{settled: k, outcome: outcome, answerer: answerer})
}

// payLocked queues the owed frames.
func (c *conn) payLocked() {
	for i := range c.sides {
		s := &c.sides[i]
		for j, h := range s.dirty {
			h.isDirty = false
			h.putFlowLocked()
			s.dirty[j] = nil
		}
		s.dirty = s.dirty[:0]
	}
}

// doneLocked ends the work of any other goroutine. It flushes if no read loop is active to do so.
func (c *conn) doneLocked() {
	if c.active > 0 {
		return
	}
	c.payLocked()
	for i := range c.sides {
		if s := &c.sides[i]; s.Queued() > 0 {
			s.Signal()
		}
	}
}

// serve runs the connection to its end and leaves no goroutine behind.
func (c *conn) serve() error {
	defer c.cancel()
	down, up := &c.sides[client], &c.sides[upstream]
	err := c.handshakeClient()
	if err == nil {
		err = c.connectUpstream()
	}
	if err == nil {
		read := make(chan error, 1)
		c.mu.Lock()
		c.active++
		c.mu.Unlock()
		go func() { read <- c.finish(up, up.ReadLoop(up.dispatch)) }()
		derr := c.finish(down, down.ReadLoop(down.dispatch))
		err = errors.Join(derr, <-read)
	} else {
		c.refuse(err)
	}
	for i := range c.sides {
		s := &c.sides[i]
		if s.NetConn == nil {
			continue
		}
		if err := s.Finish(); err != nil && !s.Answered && c.cause == nil {
			c.cause = fmt.Errorf("%s: %w", s.name, err)
		}
		s.NetConn.Close()
	}
	c.abandon()
	if c.cause != nil {
		return c.cause
	}
	return err
}

// failLocked ends the connection because of an error of s.
func (c *conn) failLocked(s *side, e *amqp.Error) {
	if c.cause == nil {
		c.cause = fmt.Errorf("%s: %w", s.name, e)
	}
	s.Close(e)
	s.other().Close(farError(s, e))
}

// farError is the error that the other peer gets when s ends. A client gets one that makes its SDK
// connect again; upstream gets none. A token of the relay's own that came too late is not the
// client's fault, and its SDK would give up on that error.
func farError(s *side, err error) *amqp.Error {
	if s.at == client {
		return nil
	}
	var closed *transport.PeerClosed
	if errors.As(err, &closed) {
		ours := s.c.ownSession && !s.c.auth.grants.wanting()
		if !ours || closed.Reason == nil || closed.Reason.Condition != amqp.ErrCondUnauthorizedAccess {
			return closed.Reason
		}
	}
	return amqp.Errorf(amqp.ErrCondConnectionForced, "The connection to the namespace ended: %v.", err)
}

// finish follows the end of a read loop. The peer gets a close with the error if the error is its
// fault and the connection still takes a close. The other side is closed.
func (c *conn) finish(s *side, err error) error {
	linger := c.announceEnd(s, err)
	if linger {
		s.DrainInput()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// announceEnd closes both sides for the end of s. It reports whether input has to be read and thrown away until the peer has
// seen our close: closing a socket with unread input would take it along.
func (c *conn) announceEnd(s *side, err error) (linger bool) {
	c.mu.Lock()
	defer c.unlock()
	if c.cause == nil && err != nil {
		c.cause = fmt.Errorf("%s: %w", s.name, err)
	}
	if s.at == client {
		for _, h := range s.halves {
			h.other().releaseUnsentLocked(nil)
		}
	}
	linger = s.End(err)
	var far *amqp.Error
	if err != nil {
		far = farError(s, err)
	}
	s.other().Close(far)
	c.active--
	c.doneLocked()
	return linger
}

// abandon ends the pending work of the connection.
func (c *conn) abandon() {
	c.mu.Lock()
	for _, h := range c.sides[client].halves {
		h.s.overLocked()
	}
	for _, h := range c.sides[client].channels {
		if h != nil {
			h.s.overLocked()
		}
	}
	c.unlock()
	c.endAuth()
}

// cut ends the connection without a close. Any goroutine may call it.
func (c *conn) cut() {
	c.cancel()
	c.mu.Lock()
	defer c.unlock()
	c.wasCut = true
	for i := range c.sides {
		if nc := c.sides[i].NetConn; nc != nil {
			nc.Close()
		}
	}
}

// drain closes the connection once every delivery of its client has an outcome.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.unlock()
	c.draining = true
	if c.sides[upstream].State == transport.Handshaking {
		c.cancel() // of the dial; the handshake ends with the client's close
	}
	if s := &c.sides[client]; s.Peer == nil {
		s.NetConn.Close() // nothing was promised to it
	}
	c.drainedLocked()
	c.doneLocked()
}

// drainedLocked closes a draining connection when it is quiet.
func (c *conn) drainedLocked() {
	if !c.draining || c.sides[client].State != transport.Open {
		return
	}
	for _, h := range c.sides[client].halves {
		if h.queue.len() > 0 || h.pending.Len() > 0 || h.unsettled > 0 && h.sendsLocked() {
			return
		}
	}
	if len(c.requests) > 0 || c.responding > 0 {
		return
	}
	e := &amqp.Error{Condition: amqp.ErrCondConnectionForced, Description: "The relay is shutting down."}
	c.sides[client].Close(e)
	c.sides[upstream].Close(nil)
}
