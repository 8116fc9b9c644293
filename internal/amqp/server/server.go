// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net"

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
