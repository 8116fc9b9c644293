// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
)

// errHungUp is why a connection ended when the peer closed the socket without a close performative.
var errHungUp = errors.New("peer hung up")

// errSilent is why a connection ended when nothing, not even a keep-alive, came for twice Config.IdleTimeout.
var errSilent = errors.New("peer was silent for too long")

// errCredentials is why a connection ended that Config.Authenticate refused.
var errCredentials = errors.New("wrong credentials")

// errCloseUnanswered is why a connection ended when the peer did not answer our close within Config.CloseTimeout.
var errCloseUnanswered = errors.New("peer did not answer close")

func errShutdown() *amqp.Error {
	return &amqp.Error{Condition: amqp.ErrCondConnectionForced, Description: "The server is shutting down."}
}

type connState uint8

const (
	connHandshake connState = iota // headers, SASL, opens
	connOpen
	connClosing // our close is sent, the peer's is awaited; nothing else is sent
	connDead    // nothing more is queued; the writer flushes and ends
)

// A Conn is one connection of a peer.
type Conn struct {
	srv *Server
	cfg *Config
	nc  net.Conn
	id  uint64

	quota *accept.Quota // nil: no limits

	// Owned by the read loop; open and mechanism are constant once Handler.Connect is called.
	in         *amqp.FrameReader
	dec        amqp.Decoder
	handler    ConnHandler
	open       *amqp.Open
	mechanism  amqp.Symbol
	response   []byte
	stated     []*Outgone // buffer for the deliveries of one disposition
	maxFrame   uint32     // the peer's
	channelMax uint16     // the peer's

	mu       sync.Mutex
	state    connState
	closeErr *amqp.Error // of our close
	deadline time.Time   // of the handshake, then of the answer to our close
	idle     bool        // the read loop waits, so others have to flush their output
	calling  bool        // the writer calls the handler while the read loop waits
	read     time.Time   // when input came last
	tasks    []func()    // calls of the handler that are due

	sessions map[uint16]*Session // by the peer's channel
	channels []*Session          // by ours
	links    map[linkKey]*link   // attached or waiting for the handler
	attached uint64              // links so far
	nlinks   int                 // handles of the peer in use
	dirty    []*Session          // sessions with dispositions or flows to write
	posting  []*Session          // sessions whose posted messages wait for room in the output
	assembly []byte              // buffer for the next delivery of several frames

	rules idleRules

	output
}

type linkKey struct {
	name string
	role amqp.Role // the peer's
}

func newConn(s *Server, nc net.Conn, id uint64) *Conn {
	c := &Conn{
		srv: s, cfg: &s.cfg, nc: nc, id: id, quota: s.unauthenticated.EnterOrJoin(nc),
		maxFrame: amqp.MinMaxFrameSize,
		sessions: make(map[uint16]*Session),
		links:    make(map[linkKey]*link),
	}
	c.initOutput()
	c.in = amqp.NewFrameReader((*connReader)(c), s.cfg.MaxFrameSize)
	return c
}

// ID returns a number that is unique among all connections of this server, past and present.
func (c *Conn) ID() uint64 { return c.id }

// Open returns the peer's open; it must not be modified.
func (c *Conn) Open() *amqp.Open { return c.open }

// RemoteContainerID returns the peer's name for itself.
func (c *Conn) RemoteContainerID() string { return c.open.ContainerID }

// Hostname returns the name by which the peer knows this server, as in its open; it may be empty.
func (c *Conn) Hostname() string { return c.open.Hostname }

// RemoteAddr returns the peer's network address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// NetConn returns the transport, for its addresses and its TLS state; it must not be read, written or closed.
func (c *Conn) NetConn() net.Conn { return c.nc }

// Cut ends the connection without a close frame. It may be called from any goroutine.
func (c *Conn) Cut() { c.nc.Close() }

// SASL returns the mechanism that the peer chose and its initial response; "" without a SASL layer.
func (c *Conn) SASL() (mechanism amqp.Symbol, initialResponse []byte) { return c.mechanism, c.response }

// A Link is a SinkLink or a SourceLink.
type Link interface {
	Attach() *amqp.Attach
	Detach(e *amqp.Error)
}

// Links returns the links that are attached, or whose attach waits for an answer, in no order. It may be called from
// any goroutine.
func (c *Conn) Links() []Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Link, 0, len(c.links))
	for _, l := range c.links {
		all = append(all, l)
	}
	return all
}

// Close closes the connection with e, or without an error if e is nil. It does not wait, and may be called from any goroutine.
// The links' Detached and Closed follow when the peer has answered, at the latest after Config.CloseTimeout.
func (c *Conn) Close(e *amqp.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(e)
}

func (c *Conn) closeLocked(e *amqp.Error) {
	if c.state == connOpen {
		c.flushLocked()
		if e != nil && e.Condition == amqp.ErrCondConnectionForced {
			c.detachAllLocked(e)
		}
	}
	c.closeNowLocked(e)
}

// detachAllLocked detaches every link with the error of the close that follows, as the service
// does.
func (c *Conn) detachAllLocked(e *amqp.Error) {
	for _, s := range c.channels {
		if s == nil {
			continue
		}
		for _, l := range s.handles {
			if l != nil {
				l.detachLocked(e)
			}
		}
	}
}

// closeNowLocked closes without flushing; the flush itself may call it.
func (c *Conn) closeNowLocked(e *amqp.Error) {
	switch c.state {
	case connHandshake:
		// A close may not come before open, and the peer has sent nothing yet.
		c.closeErr = e
		c.state = connDead
		c.nc.Close()
	case connOpen:
		c.closeErr = e
		c.putLocked(0, &amqp.Close{Error: e})
		c.state = connClosing
		c.deadline = time.Now().Add(c.cfg.CloseTimeout)
		// A stalled read or write must not delay the end. Failures show in the read and in the write.
		_ = c.nc.SetDeadline(c.deadline)
	}
	c.releaseLocked()
}

// releaseLocked wakes everything that waits for this connection's state.
func (c *Conn) releaseLocked() {
	for _, s := range c.channels {
		if s != nil {
			s.ready.Broadcast()
		}
	}
	c.room.Broadcast()
	c.signalLocked()
}

// serve runs the connection to its end and leaves no goroutine behind.
func (c *Conn) serve() error {
	c.deadline = time.Now().Add(c.cfg.HandshakeTimeout)
	wrote := make(chan error, 1)
	go func() {
		err := c.writeLoop()
		if err != nil {
			c.die() // no goroutine may wait for an output that is never written
			c.nc.Close()
		}
		wrote <- err
	}()

	err := c.handshake()
	if err == nil {
		err = c.readLoop()
	}
	linger := c.finish(err)
	werr := <-wrote
	if linger && werr == nil {
		c.drainInput()
	}
	c.nc.Close()
	if werr != nil && err != nil && !c.closeSent() {
		err = werr // the read loop's error is a consequence of it
	}
	c.abandon(err)
	if errors.Is(err, errHungUp) && c.open == nil {
		return fmt.Errorf("before open: %w", err)
	}
	return err
}

func (c *Conn) die() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = connDead
	c.releaseLocked()
}

// readLoop handles frames until the connection ends; nil means that both sides have closed without an error.
func (c *Conn) readLoop() error {
	for {
		f, err := c.in.Next()
		if err != nil {
			return c.readError(err)
		}
		if f.Type != amqp.FrameAMQP {
			return amqp.Errorf(amqp.ErrCondConnectionFramingError, "Frame of type %d after open.", f.Type)
		}
		if len(f.Body) == 0 {
			continue // keep-alive
		}
		p, payload, err := c.dec.Decode(f.Body)
		if err != nil {
			return err
		}
		c.trace("in", f.Channel, p, len(payload))
		if cl, ok := p.(*amqp.Close); ok {
			return c.closed(cl)
		}
		if err := c.dispatch(f.Channel, p, payload); err != nil {
			return err
		}
	}
}

// closed handles the peer's close, the last frame it sends.
func (c *Conn) closed(cl *amqp.Close) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connOpen {
		c.flushLocked()
		c.putLocked(0, &amqp.Close{})
	}
	c.state = connDead
	switch {
	case c.closeErr != nil:
		return c.closeErr
	case cl.Error != nil:
		return fmt.Errorf("peer closed it: %w", cl.Error)
	}
	return nil
}

// readError translates the error of a read.
func (c *Conn) readError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ne net.Error
	timeout := errors.As(err, &ne) && ne.Timeout()
	switch {
	case c.quota.Why() != nil:
		return c.quota.Why()
	case c.closeErr != nil:
		return c.closeErr
	case c.state == connClosing && timeout:
		return errCloseUnanswered
	case c.state == connHandshake && timeout:
		return errors.New("the handshake took too long")
	case timeout:
		return errSilent
	case c.srv.conns.Closed() && (errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)):
		return ErrServerClosed
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errHungUp
	}
	return err
}

// dispatch hands one performative to its session.
func (c *Conn) dispatch(ch uint16, p amqp.Performative, payload []byte) error {
	if b, ok := p.(*amqp.Begin); ok {
		return c.onBegin(ch, b)
	}
	c.mu.Lock()
	s := c.sessions[ch]
	if s != nil {
		s.heard = c.read
	}
	closing := c.state != connOpen
	c.mu.Unlock()
	switch {
	case closing:
		return nil // frames that crossed our close
	case s == nil:
		if _, detach := p.(*amqp.Detach); detach {
			return nil // the Python SDK detaches its links after its end (Session.end of azure/servicebus/_pyamqp)
		}
		return amqp.Errorf(amqp.ErrCondNotAllowed, "There is no session on channel %d.", ch)
	}
	switch p := p.(type) {
	case *amqp.Transfer:
		return s.onTransfer(p, payload)
	case *amqp.Disposition:
		s.onDisposition(p)
	case *amqp.Flow:
		s.onFlow(p)
	case *amqp.Attach:
		return s.onAttach(p)
	case *amqp.Detach:
		s.onDetach(p)
	case *amqp.End:
		s.onEnd(p)
	default:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "%T is not allowed in an open connection.", p)
	}
	return nil
}
