// SPDX-License-Identifier: Apache-2.0

package amqpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// ErrServerClosed is returned by Serve and ServeConn once Shutdown or Close has been called.
var ErrServerClosed = errors.New("amqpserver: server closed")

// ErrTooManyConns is returned by ServeConn when Config.MaxConns connections are being served.
var ErrTooManyConns = errors.New("amqpserver: too many connections")

// A Server serves AMQP 1.0 connections.
type Server struct {
	cfg Config

	mu        sync.Mutex
	closed    bool
	nextID    uint64
	conns     map[*Conn]struct{}
	listeners map[net.Listener]struct{}
	gone      chan struct{} // made by the first waiter, closed when the last connection of a closed server ends
}

// New returns a server. It panics if cfg.Handler is nil, which no configuration file can cause.
func New(cfg Config) *Server {
	if cfg.Handler == nil {
		panic("amqpserver: Config.Handler is nil")
	}
	return &Server{
		cfg:       cfg.withDefaults(),
		conns:     make(map[*Conn]struct{}),
		listeners: make(map[net.Listener]struct{}),
	}
}

// Serve accepts connections until the listener fails or the server is closed, and always returns an error:
// ErrServerClosed after Shutdown or Close. Accepting never waits for a peer. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	defer ln.Close()
	if !s.addListener(ln) {
		return ErrServerClosed
	}
	defer s.removeListener(ln)
	pause := acceptPause
	for {
		nc, err := ln.Accept()
		if err != nil {
			if s.isClosed() {
				return ErrServerClosed
			}
			if !temporary(err) {
				return fmt.Errorf("amqpserver: accept: %w", err)
			}
			// Out of descriptors: the connections that are open free them, so wait and go on.
			s.log(fmt.Errorf("amqpserver: accept: %w", err))
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
			continue
		}
		pause = acceptPause
		go func() {
			if err := s.ServeConn(nc); err != nil && !s.isClosed() {
				s.log(err)
			}
		}()
	}
}

const acceptPause = 5 * time.Millisecond

// temporary reports whether accepting may succeed later: what fails is this process or that peer, not the listener.
func temporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ServeConn serves one connection and closes it. It returns when the connection has ended and nothing of it runs any
// more: nil after a clean close by either side, else the reason. The reason is not passed to Config.ErrorLog.
func (s *Server) ServeConn(nc net.Conn) error {
	s.mu.Lock()
	if s.closed || len(s.conns) >= s.cfg.MaxConns {
		closed := s.closed
		s.mu.Unlock()
		nc.Close() // nothing was promised to this peer
		if closed {
			return ErrServerClosed
		}
		return fmt.Errorf("%w: refused %v", ErrTooManyConns, nc.RemoteAddr())
	}
	s.nextID++
	c := newConn(s, nc, s.nextID)
	s.conns[c] = struct{}{}
	s.mu.Unlock()

	err := c.serve()

	s.mu.Lock()
	delete(s.conns, c)
	if len(s.conns) == 0 && s.gone != nil {
		close(s.gone)
		s.gone = nil
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("amqpserver: connection from %v: %w", nc.RemoteAddr(), err)
	}
	return nil
}

// Shutdown stops accepting, closes every connection with amqp:connection:forced and waits until the last one has
// ended. When ctx ends first, the rest are cut, and ctx's error is returned after they have ended.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.close() {
		c.Close(errShutdown())
	}
	gone := s.waitGone()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	s.cut()
	<-gone
	return ctx.Err()
}

// Close stops accepting, cuts every connection and waits until the last one has ended.
func (s *Server) Close() error {
	s.close()
	s.cut()
	<-s.waitGone()
	return nil
}

// close marks the server closed, closes its listeners and returns the connections that live.
func (s *Server) close() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for ln := range s.listeners {
		ln.Close() // its only error is that it is closed already
	}
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// cut closes the sockets of all connections, which makes their loops end.
func (s *Server) cut() {
	for _, c := range s.close() {
		c.nc.Close()
	}
}

func (s *Server) waitGone() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if s.gone == nil {
		s.gone = make(chan struct{})
	}
	return s.gone
}

func (s *Server) addListener(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners[ln] = struct{}{}
	return true
}

func (s *Server) removeListener(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, ln)
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Server) log(err error) {
	if s.cfg.ErrorLog != nil {
		s.cfg.ErrorLog(err)
	}
}
