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
	// AMQP serves one connection of AMQP, whatever carries it, and closes it. It
	// returns when the connection has ended: nil after a clean end.
	AMQP func(net.Conn) error
	// HTTP answers all requests but those for AMQP over WebSocket. It reads names of
	// headers as they were sent, see rest.Serve, and bounds the bodies.
	HTTP http.Handler
	// Requests is what the contexts of requests are made from. Default
	// context.Background.
	Requests context.Context
	// TLS serves the clients that begin with its handshake; nil turns them away.
	TLS *tls.Config
	// Open says that nobody has to show a token. Pages of other machines are kept
	// out then: see the package comment. Otherwise a connection is one of the
	// accept.Strangers until AMQP, which finds it by accept.GuestOf, or HTTP, by
	// Admit, says that it has shown a good one.
	Open bool
	// MaxConns bounds the connections, of all protocols together. Default 10000.
	MaxConns int
	// FirstByteTimeout bounds how long a client may take until it is known what it
	// speaks. Default 10 s.
	FirstByteTimeout time.Duration
	// ErrorLog is told why connections ended, unless they ended cleanly. It may be
	// called from several goroutines at once. nil drops the errors.
	ErrorLog func(error)
}

// Timeouts and bounds that are not worth a setting.
const (
	headTimeout  = 10 * time.Second // for the head of a request
	writeTimeout = 30 * time.Second // for one write of an answer
	idleTimeout  = 2 * time.Minute  // between two requests
	maxHead      = 64 << 10         // bytes; Service Bus takes 64 KiB of properties
)

// A Server serves the clients of one door, on any number of listeners. Its
// methods are safe for concurrent use.
type Server struct {
	cfg   Config
	conns *accept.Table[net.Conn]
	http  *http.Server
	feed  *feed

	strangers *accept.Strangers // every connection, until it is good; see Config.Open and Admit

	started bool          // feed is being served; written while a connection enters
	httpEnd chan struct{} // closed when http.Serve has ended
}

// New returns a server. It panics if cfg lacks what is required, which no
// configuration file can cause.
func New(cfg Config) *Server {
	if cfg.AMQP == nil || cfg.HTTP == nil {
		panic("door: Config.AMQP or Config.HTTP is nil")
	}
	cfg.MaxConns = cmp.Or(max(cfg.MaxConns, 0), 10_000)
	cfg.FirstByteTimeout = cmp.Or(max(cfg.FirstByteTimeout, 0), 10*time.Second)
	if cfg.Requests == nil {
		cfg.Requests = context.Background()
	}
	s := &Server{
		cfg: cfg, feed: newFeed(), httpEnd: make(chan struct{}),
		conns: accept.New[net.Conn]("door", cfg.MaxConns, cfg.ErrorLog), strangers: accept.NewStrangers(accept.Limits{}),
	}
	s.conns.Guard(s.strangers)
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
		BaseContext:       func(net.Listener) context.Context { return cfg.Requests },
		ConnContext:       withGuest,
		ErrorLog:          lineLogger(s.log),
	}
	return s
}

// Serve accepts connections until ln fails or the server is closed, and always
// returns an error: ErrClosed after Shutdown or Close. It closes ln.
func (s *Server) Serve(ln net.Listener) error { return s.conns.Serve(ln, s.ServeConn) }

// ServeTLS is Serve for a listener that takes nothing but TLS. It says so to
// clients that begin with something else.
func (s *Server) ServeTLS(ln net.Listener) error {
	return s.conns.Serve(ln, func(nc net.Conn) error { return s.serveConn(nc, false) })
}

// ServeConn serves one connection, whatever it speaks, and closes it. It returns
// when the connection has ended: nil after a clean end, else the reason.
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
	guest := s.strangers.Enter(nc)
	defer guest.Leave()
	c, what, err := s.recognise(nc, guest, plain)
	if s.cfg.Open {
		guest.Admit()
	}
	switch {
	case guest.Why() != nil:
		return fmt.Errorf("door: connection from %v: %w", nc.RemoteAddr(), guest.Why())
	case errors.Is(err, errNothingSaid):
		return nil // such as a probe that wants to know whether somebody listens
	case err != nil:
		return fmt.Errorf("door: connection from %v: %w", nc.RemoteAddr(), err)
	case what == speaksHTTP:
		return s.feed.serve(c)
	}
	return s.cfg.AMQP(c)
}

// startHTTP comes with the first connection, so that a server that is made and
// never used leaves nothing.
func (s *Server) startHTTP() {
	if s.started {
		return
	}
	s.started = true
	go func() {
		defer close(s.httpEnd)
		// It ends with the feed, which is closed by Shutdown and Close alone.
		_ = rest.Serve(s.http, s.feed)
	}()
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.cfg.Open && fromElsewhere(r):
		http.Error(w, "Pages of other machines may not use a port that asks for no keys. On this machine it is called localhost.", http.StatusForbidden)
	case strings.EqualFold(strings.TrimRight(r.URL.Path, "/"), WebSocketPath):
		s.serveWebSocket(w, r)
	default:
		s.cfg.HTTP.ServeHTTP(w, r)
	}
}

// Drain stops accepting, and returns when the last connection has been closed by
// its client or ctx ends. It ends none itself, and requests are answered as before.
func (s *Server) Drain(ctx context.Context) error {
	s.conns.Close()
	select {
	case <-s.conns.Gone():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Connections returns how many there are, of all protocols together.
func (s *Server) Connections() int { return s.conns.Len() }

// Shutdown stops accepting, and returns when all requests are answered or ctx
// ends. AMQP connections stay, over WebSocket too: they
// end with who serves them, or with Close.
func (s *Server) Shutdown(ctx context.Context) error {
	s.conns.Close()
	err := s.http.Shutdown(ctx)
	s.feed.Close() // its only error is that it is closed already
	return err
}

// Close stops accepting, cuts every connection and waits until the last one has
// ended.
func (s *Server) Close() error {
	for _, nc := range s.conns.Close() {
		nc.Close() // its end shows where it is read
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
