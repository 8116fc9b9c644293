// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"overdue/internal/listener/accept"
	"overdue/internal/servicebus/rest"
)

// ErrClosed is returned by Serve and ServeConn once Shutdown or Close has been
// called.
var ErrClosed = accept.ErrClosed

// Config configures a Server. AMQP and HTTP are required.
type Config struct {
	// AMQP serves and closes one AMQP connection, over any transport. It
	// returns when the connection has ended: nil after a clean end.
	AMQP func(net.Conn) error
	// HTTP answers all requests except those for AMQP over WebSocket. It gets header
	// names as the client sent them, see rest.Serve, and bounds the bodies.
	HTTP http.Handler
	// Requests is the parent of the contexts of requests. Default context.Background.
	Requests context.Context
	// TLS serves clients that begin with a handshake; nil refuses them.
	TLS *tls.Config
	// Open means that clients need no token. The server then refuses requests from
	// web pages of other machines: see the package comment. Otherwise a connection is
	// unauthenticated until AMQP, which finds its quota with accept.QuotaOf, or HTTP,
	// with Admit, reports a valid token.
	Open bool
	// Hosts are names by which clients may call an open server over HTTP, besides those that only
	// this machine and its network can have.
	Hosts []string
	// MaxConns bounds the connections, of all protocols together. Default 10000.
	MaxConns int
	// FirstByteTimeout bounds the time until the protocol of a client is known.
	// Default 10 s.
	FirstByteTimeout time.Duration
	// ErrorLog gets the reason of each connection that did not end cleanly. It may be
	// called from several goroutines at once. nil drops the errors.
	ErrorLog func(error)
}

// Timeouts and bounds that are not configurable.
const (
	headTimeout  = 10 * time.Second // for the head of a request
	writeTimeout = 30 * time.Second // for one write of a response
	idleTimeout  = 2 * time.Minute  // between two requests
	maxHead      = 64 << 10         // bytes; Service Bus takes 64 KiB of properties
)

// A Server serves one endpoint on any number of listeners. Its methods are safe for
// concurrent use.
type Server struct {
	cfg   Config
	names []string // see ownNames
	conns *accept.Table[net.Conn]
	http  *http.Server
	feed  *feed

	unauthenticated *accept.Unauthenticated // see Config.Open and Admit

	started bool          // feed is being served; written while a connection enters
	httpEnd chan struct{} // closed when http.Serve has ended
}

// New returns a server. It panics if cfg lacks what is required, which no
// configuration file can cause.
func New(cfg Config) *Server {
	if cfg.AMQP == nil || cfg.HTTP == nil {
		panic("listener: Config.AMQP or Config.HTTP is nil")
	}
	cfg.MaxConns = cmp.Or(max(cfg.MaxConns, 0), 10_000)
	cfg.FirstByteTimeout = cmp.Or(max(cfg.FirstByteTimeout, 0), 10*time.Second)
	if cfg.Requests == nil {
		cfg.Requests = context.Background()
	}
	s := &Server{
		cfg: cfg, names: ownNames(cfg.Hosts), feed: newFeed(), httpEnd: make(chan struct{}),
		conns: accept.New[net.Conn]("listener", cfg.MaxConns, cfg.ErrorLog), unauthenticated: accept.NewUnauthenticated(accept.Limits{}),
	}
	s.conns.Guard(s.unauthenticated)
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
		BaseContext:       func(net.Listener) context.Context { return cfg.Requests },
		ConnContext:       withQuota,
		ErrorLog:          lineLogger(s.log),
	}
	return s
}

// Serve accepts connections until ln fails or the server is closed, and always
// returns an error: ErrClosed after Shutdown or Close. It closes ln.
func (s *Server) Serve(ln net.Listener) error { return s.conns.Serve(ln, s.ServeConn) }

// ServeTLS is Serve for a listener that accepts TLS only. Other clients get an answer that says so.
func (s *Server) ServeTLS(ln net.Listener) error {
	return s.conns.Serve(ln, func(nc net.Conn) error { return s.serveConn(nc, false) })
}

// ServeConn serves and closes one connection of any protocol. It returns when the
// connection has ended: nil after a clean end, or else the reason.
func (s *Server) ServeConn(nc net.Conn) error { return s.serveConn(nc, true) }

func (s *Server) serveConn(nc net.Conn, plain bool) error {
	if _, err := s.conns.Enter(nc, func(uint64) net.Conn {
		s.startHTTP()
		return nc
	}); err != nil {
		return err
	}
	defer s.conns.Leave(nc)
	defer nc.Close()
	quota := s.unauthenticated.Enter(nc)
	defer quota.Leave()
	c, what, err := s.recognise(nc, quota, plain)
	if s.cfg.Open {
		quota.Admit()
	}
	switch {
	case quota.Why() != nil:
		return fmt.Errorf("listener: connection from %v: %w", nc.RemoteAddr(), quota.Why())
	case errors.Is(err, errNoBytes):
		return nil // a TCP probe, for example
	case err != nil:
		return fmt.Errorf("listener: connection from %v: %w", nc.RemoteAddr(), err)
	case what == speaksHTTP:
		return s.feed.serve(c)
	}
	return s.cfg.AMQP(c)
}

// startHTTP runs with the first connection, so that an unused server leaves no goroutine.
func (s *Server) startHTTP() {
	if s.started {
		return
	}
	s.started = true
	go func() {
		defer close(s.httpEnd)
		// It ends with the feed, which only Shutdown and Close close.
		_ = rest.Serve(s.http, s.feed)
	}()
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.cfg.Open && fromOtherPage(r):
		http.Error(w, "Pages of other machines may not use a port that requires no keys.", http.StatusForbidden)
	case s.cfg.Open && s.mayRebind(r):
		http.Error(w, "The host name could be that of a page of another machine, which may not use a port that requires no keys. "+
			"Use localhost, an address or a name without a dot; the embedded broker takes those of broker.tls.hosts, too.", http.StatusForbidden)
	case strings.EqualFold(strings.TrimRight(r.URL.Path, "/"), WebSocketPath):
		s.serveWebSocket(w, r)
	default:
		s.cfg.HTTP.ServeHTTP(w, r)
	}
}

// Drain stops accepting, and returns when clients have closed the last connection or ctx
// ends. It closes no connection, and requests are answered as before.
func (s *Server) Drain(ctx context.Context) error {
	s.conns.Close()
	select {
	case <-s.conns.Gone():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Connections returns the number of connections of all protocols.
func (s *Server) Connections() int { return s.conns.Len() }

// Shutdown stops accepting, and returns when all requests are answered or ctx
// ends. AMQP connections stay, also over WebSocket, until Config.AMQP or Close ends them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.conns.Close()
	err := s.http.Shutdown(ctx)
	s.feed.Close() // its only error is that it is closed already
	return err
}

// Close stops accepting, closes every connection and waits until the last one has
// ended.
func (s *Server) Close() error {
	for _, nc := range s.conns.Close() {
		nc.Close() // the reader reports the end
	}
	err := s.http.Close()
	s.feed.Close()
	<-s.conns.Gone()
	if s.started {
		<-s.httpEnd
	}
	return err
}

func (s *Server) log(err error) {
	if s.cfg.ErrorLog != nil {
		s.cfg.ErrorLog(err)
	}
}
