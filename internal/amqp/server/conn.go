// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
	"overdue/internal/listener/accept"
)

// errCredentials is why a connection ended that Config.Authenticate refused.
var errCredentials = errors.New("wrong credentials")

func errShutdown() *amqp.Error {
	return &amqp.Error{Condition: amqp.ErrCondConnectionForced, Description: "The server is shutting down."}
}

// A Conn is one connection of a peer.
type Conn struct {
	srv *Server
	cfg *Config
	id  uint64

	quota *accept.Quota // nil: no limits

	// Owned by the read loop; mechanism is constant once Handler.Connect is called.
	handler   ConnHandler
	mechanism amqp.Symbol
	response  []byte
	stated    []*Outgone // buffer for the deliveries of one disposition

	mu      sync.Mutex
	wire    transport.Conn
	room    *sync.Cond // the output became shorter, a call of the handler has returned, or the connection has ended
	idle    bool       // the read loop waits, so others have to flush their output
	calling bool       // the writer calls the handler while the read loop waits
	read    time.Time  // when input came last
	tasks   []func()   // calls of the handler that are due

	sessions map[uint16]*Session // by the peer's channel
	channels []*Session          // by ours
	links    map[linkKey]*link   // attached or waiting for the handler
	attached uint64              // links so far
	nlinks   int                 // handles of the peer in use
	dirty    []*Session          // sessions with dispositions or flows to write
	posting  []*Session          // sessions whose posted messages wait for room in the output
	assembly []byte              // buffer for the next delivery of several frames

	rules idleRules

	transfer amqp.Transfer // encoded by every delivery, so that none allocates it
	flow     amqp.Flow
	ack      amqp.Disposition
}

type linkKey struct {
	name string
	role amqp.Role // the peer's
}

func newConn(s *Server, nc net.Conn, id uint64) *Conn {
	c := &Conn{
		srv: s, cfg: &s.cfg, id: id, quota: s.unauthenticated.EnterOrJoin(nc),
		sessions: make(map[uint16]*Session),
		links:    make(map[linkKey]*link),
	}
	c.room = sync.NewCond(&c.mu)
	c.wire.Connect(nc, (*owner)(c), c.room, transport.Config{
		MaxFrameSize:     s.cfg.MaxFrameSize,
		HandshakeTimeout: s.cfg.HandshakeTimeout,
		WriteTimeout:     s.cfg.WriteTimeout,
		CloseTimeout:     s.cfg.CloseTimeout,
		Silence:          transport.SilenceFactor * s.cfg.IdleTimeout,
	})
	return c
}

// ID returns a number that is unique among all connections of this server, past and present.
func (c *Conn) ID() uint64 { return c.id }

// Open returns the peer's open; it must not be modified.
func (c *Conn) Open() *amqp.Open { return c.wire.Peer }

// Hostname returns the name by which the peer knows this server, as in its open; it may be empty.
func (c *Conn) Hostname() string { return c.wire.Peer.Hostname }

// RemoteAddr returns the peer's network address.
func (c *Conn) RemoteAddr() net.Addr { return c.wire.NetConn.RemoteAddr() }

// NetConn returns the transport, for its addresses and its TLS state; it must not be read, written or closed.
func (c *Conn) NetConn() net.Conn { return c.wire.NetConn }

// Cut ends the connection without a close frame. It may be called from any goroutine.
func (c *Conn) Cut() { c.wire.NetConn.Close() }

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
	if c.wire.State == transport.Open {
		c.flushLocked()
		if e != nil && e.Condition == amqp.ErrCondConnectionForced {
			c.detachAllLocked(e)
		}
	}
	c.wire.Close(e)
	c.releaseLocked()
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

// releaseLocked wakes everything that waits for this connection's state.
func (c *Conn) releaseLocked() {
	for _, s := range c.channels {
		if s != nil {
			s.ready.Broadcast()
		}
	}
}

// serve runs the connection to its end and leaves no goroutine behind.
func (c *Conn) serve() error {
	err := c.handshake()
	if err == nil {
		err = c.wire.ReadLoop(c.dispatch)
	}
	linger := c.finish(err)
	werr := c.wire.Finish()
	if linger && werr == nil {
		c.wire.DrainInput()
	}
	c.wire.NetConn.Close()
	c.mu.Lock()
	if werr != nil && err != nil && c.wire.CloseErr == nil {
		err = werr // the read loop's error is a consequence of it
	}
	c.mu.Unlock()
	c.abandon(err)
	if errors.Is(err, transport.ErrHungUp) && c.wire.Peer == nil {
		return fmt.Errorf("before open: %w", err)
	}
	return err
}

// finish sends close if err is the peer's fault and the connection can still carry it. It reports
// whether the input has to be drained.
func (c *Conn) finish(err error) (linger bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire.State == transport.Open {
		c.flushLocked()
	}
	refused := c.wire.State == transport.Handshaking && err != nil && !over(err)
	c.rules.end()
	linger = c.wire.End(err)
	c.releaseLocked()
	return linger || refused
}

func (c *Conn) dieLocked() {
	c.wire.Die()
	c.releaseLocked()
}

// abandon ends the handler's links and calls its Closed.
func (c *Conn) abandon(err error) {
	why := amqp.AsError(err)
	if why == nil {
		why = &amqp.Error{Condition: amqp.ErrCondConnectionForced,
			Description: "The connection was closed."}
	} else if why.Condition == amqp.ErrCondInternalError {
		why = amqp.Errorf(amqp.ErrCondConnectionForced, "The connection ended: %v.", err)
	}
	c.mu.Lock()
	channels := slices.Sorted(maps.Keys(c.sessions))
	for _, ch := range channels {
		c.tasks = append(c.tasks, c.sessions[ch].overLocked(why)...)
	}
	c.runTasksLocked()
	c.mu.Unlock()
	if c.handler != nil {
		c.handler.Closed(err)
	}
}

// dispatch hands one performative to its session.
func (c *Conn) dispatch(ch uint16, p amqp.Performative, payload []byte) error {
	switch p := p.(type) {
	case *amqp.Begin:
		return c.onBegin(ch, p)
	case *amqp.Close:
		return c.closed(p)
	}
	c.mu.Lock()
	s := c.sessions[ch]
	if s != nil {
		s.heard = c.read
	}
	closing := c.wire.State != transport.Open
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

// closed handles the peer's close.
func (c *Conn) closed(cl *amqp.Close) error {
	c.mu.Lock()
	if c.wire.State == transport.Open {
		c.flushLocked()
	}
	ours := c.wire.CloseErr
	c.mu.Unlock()
	if err := c.wire.Closed(cl); ours == nil {
		return err
	}
	return ours
}

// handshake takes the connection from its first byte to both opens: an optional SASL layer, the
// AMQP header, open.
func (c *Conn) handshake() error {
	err := c.wire.Welcome(c.cfg.Mechanisms, false, func(init *amqp.SASLInit) (string, error) {
		if c.cfg.Authenticate != nil && !c.cfg.Authenticate(init.Mechanism, init.InitialResponse) {
			return "", errCredentials
		}
		c.mechanism, c.response = init.Mechanism, init.InitialResponse
		return c.cfg.SASLWelcome, nil
	})
	if err != nil {
		return err
	}
	if err := c.wire.ReadOpen(); err != nil {
		c.openAnyway(err)
		return err
	}
	handler, refusal := c.cfg.Handler.Connect(c)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire.State == transport.Dead { // closed meanwhile; abandon ends the handler
		c.handler = handler
		return ErrServerClosed
	}
	c.putOpenLocked()
	c.wire.Opened()
	if refusal != nil {
		return refusal // becomes our close
	}
	c.handler = handler
	c.rules.begin(c)
	return nil
}

// openAnyway sends our open before a refusal, since close may only follow open.
func (c *Conn) openAnyway(err error) {
	if over(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire.State == transport.Handshaking {
		c.putOpenLocked()
		c.wire.State = transport.Open
	}
}

// over reports whether a peer whose handshake ended with err expects no answer.
func over(err error) bool {
	return errors.Is(err, transport.ErrHungUp) || errors.Is(err, transport.ErrHandshakeTime)
}

// putOpenLocked sends our open. Like the service, we state no larger frames and no more channels
// than the peer does.
func (c *Conn) putOpenLocked() {
	most, channels := c.cfg.MaxFrameSize, c.cfg.ChannelMax
	if open := c.wire.Peer; open != nil {
		most, channels = min(most, open.MaxFrameSize), min(channels, open.ChannelMax)
	}
	c.wire.Put(0, &amqp.Open{
		ContainerID:  c.cfg.ContainerID,
		MaxFrameSize: most,
		ChannelMax:   channels,
		IdleTimeout:  transport.IdleMillis(c.cfg.IdleTimeout),
	})
}
