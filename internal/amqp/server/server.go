// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
)

// ErrServerClosed is returned by Serve and ServeConn once Shutdown or Close has been called.
var ErrServerClosed = accept.ErrClosed

// ErrTooManyConns is returned by ServeConn when Config.MaxConns connections are being served.
var ErrTooManyConns = accept.ErrTooMany

// FirstTokenTimeout is how long a handler should wait for a peer's first valid token.
const FirstTokenTimeout = accept.FirstTokenTimeout

// Admit lifts the limits of an unauthenticated peer: it has shown a valid token, or needs none. See
// Config.Tokens.
func (c *Conn) Admit() { c.quota.Admit() }

// A Server serves AMQP 1.0 connections.
type Server struct {
	cfg   Config
	conns *accept.Table[*Conn]

	unauthenticated *accept.Unauthenticated // nil without Config.Tokens
}

// New returns a server. It panics if cfg.Handler is nil, which is a bug of the caller.
func New(cfg Config) *Server {
	if cfg.Handler == nil {
		panic("server: Config.Handler is nil")
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, conns: accept.New[*Conn]("server", cfg.MaxConns, cfg.ErrorLog)}
	if cfg.Tokens {
		s.unauthenticated = accept.NewUnauthenticated(accept.Limits{})
	}
	s.conns.Guard(s.unauthenticated)
	return s
}

// Serve accepts connections until the listener fails or the server is closed, and always returns an
// error: ErrServerClosed after Shutdown or Close. Accepting never waits for a peer. It closes ln.
func (s *Server) Serve(ln net.Listener) error { return s.conns.Serve(ln, s.ServeConn) }

// ServeConn serves one connection and closes it. It returns when the connection and its goroutines
// have ended: nil after a clean close by either side, else the reason. The reason is not passed to
// Config.ErrorLog.
func (s *Server) ServeConn(nc net.Conn) error {
	c, err := s.conns.Enter(nc, func(id uint64) *Conn { return newConn(s, nc, id) })
	if err != nil {
		return err
	}
	defer s.conns.Leave(c)
	defer c.quota.Leave()
	if err := c.serve(); err != nil {
		return fmt.Errorf("server: connection from %v: %w", nc.RemoteAddr(), err)
	}
	return nil
}

// Shutdown stops accepting, closes every connection with amqp:connection:forced and waits until the
// last one has ended. When ctx ends first, the rest are cut, and ctx's error is returned after they
// have ended.
func (s *Server) Shutdown(ctx context.Context) error {
	return s.conns.Shutdown(ctx, func(c *Conn) { c.Close(errShutdown()) }, (*Conn).Cut)
}

// Close stops accepting, cuts every connection and waits until the last one has ended.
func (s *Server) Close() error {
	s.conns.Cut((*Conn).Cut)
	return nil
}

// Config configures a Server. Only Handler is required; the zero value of everything else is the
// default stated.
type Config struct {
	Handler Handler

	Mechanisms []amqp.Symbol // SASL mechanisms in the order offered; default ANONYMOUS
	// Authenticate reports whether to accept the peer, by its choice of Mechanisms and its initial
	// response (nil if there was none). Otherwise the SASL outcome is auth, and the connection ends.
	// The read loop calls it, so it must not block. nil accepts everybody. It is not called for a peer
	// without a SASL layer.
	Authenticate func(mechanism amqp.Symbol, initialResponse []byte) bool
	SASLWelcome  string // additional-data of the SASL outcome; default none
	ContainerID  string // of our open; default "overdue"

	MaxFrameSize   uint32 // bytes, of frames that we accept; at least 512; default 65536. Lower if the peer's own limit is lower
	MaxMessageSize uint64 // bytes, of links whose Reply has no limit; default 1 MiB
	ChannelMax     uint16 // highest channel of a connection; default 4999
	MaxLinks       int    // per connection; default 10000
	MaxConns       int    // default 10000
	MaxUnsettled   int    // deliveries per session and direction; default 100000
	IncomingWindow uint32 // transfer frames per session; default 5000

	// Tokens limits the cost of a connection (see accept.Unauthenticated) until the handler calls
	// Conn.Admit. A connection that arrives with a quota (accept.QuotaOf) is limited in any case.
	Tokens bool

	LinkIdleTimeout time.Duration // a link that is idle for so long is detached, unless it is Resident; default never
	// ConnIdleTimeout closes a connection that had no links but Resident ones for so long, also one
	// that has had none in its first minute; default never.
	ConnIdleTimeout time.Duration

	IdleTimeout      time.Duration // advertised; a peer silent for twice as long is dropped; default 4 min
	HandshakeTimeout time.Duration // from the first byte to the peer's open; default 30 s
	WriteTimeout     time.Duration // in which a peer must take 64 KiB; default 30 s
	CloseTimeout     time.Duration // in which a peer must answer our close; default 5 s

	// ErrorLog gets the reason if a connection accepted by Serve did not end cleanly. It may be called
	// from several goroutines at once.
	ErrorLog func(error)

	// Trace, if set, gets every performative: dir is "in" or "out", line has the channel and the
	// fields, never a payload. It is called with locks held and must not call back; it is for
	// debugging and costs a line per frame.
	Trace func(dir, line string)
}

func (cfg Config) withDefaults() Config {
	if cfg.Mechanisms == nil {
		cfg.Mechanisms = []amqp.Symbol{"ANONYMOUS"}
	}
	cfg.ContainerID = cmp.Or(cfg.ContainerID, "overdue")
	cfg.MaxFrameSize = cmp.Or(cfg.MaxFrameSize, 65536)
	cfg.MaxFrameSize = max(cfg.MaxFrameSize, amqp.MinMaxFrameSize)
	cfg.MaxMessageSize = cmp.Or(cfg.MaxMessageSize, 1<<20)
	cfg.ChannelMax = cmp.Or(cfg.ChannelMax, 4999)
	cfg.MaxLinks = cmp.Or(cfg.MaxLinks, 10_000)
	cfg.MaxConns = cmp.Or(cfg.MaxConns, 10_000)
	cfg.MaxUnsettled = cmp.Or(cfg.MaxUnsettled, 100_000)
	cfg.IncomingWindow = cmp.Or(cfg.IncomingWindow, 5000)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 4*time.Minute)
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, 30*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 30*time.Second)
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, 5*time.Second)
	return cfg
}

// Limits without a setting.
const (
	defaultCredit   = 1000    // deliveries outstanding or unsettled on a sink link
	maxPosted       = 1024    // messages posted and waiting, per link
	maxSingleAcks   = 16      // deliveries whose outcomes a sender gets one by one
	maxSenderRange  = 64      // deliveries per disposition to a receiver; see flushAcksLocked
	maxLinkCredit   = 1 << 30 // deliveries; more means without bound
	assemblyKeep    = 1 << 20 // bytes of capacity that a connection keeps between multi-frame deliveries
	halvesPerWindow = 2       // a session window is replenished when less than its half is left
	creditSteps     = 10      // credit is topped up in steps of at least a tenth of what the link may have, as in Service Bus
	handleMax       = 255     // of a session, as in Service Bus
	firstOutgoingID = 1       // next-outgoing-id of our begin, as in Service Bus; deliveries begin with 0
	noLimit         = ^uint64(0)
	noHandle        = ^uint32(0)
)
