// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
	"overdue/internal/listener"
	"overdue/internal/listener/accept"
)

var (
	// ErrServerClosed is returned by Serve and ServeConn once Shutdown or Close has
	// been called.
	ErrServerClosed = listener.ErrClosed
	// ErrTooManyConns is returned by ServeConn when Config.MaxConns are served.
	ErrTooManyConns = accept.ErrTooMany
)

// Config configures a Server. Only Broker is required.
type Config struct {
	// Broker serves all endpoints. It stays the caller's: Shutdown and Close
	// leave it alone.
	Broker *broker.Broker
	// TLS serves the clients that begin with its handshake; nil turns them away.
	TLS *tls.Config
	// Hosts are names by which clients may call an open broker, see listener.Config.
	Hosts []string
	// Page shows people entities and messages, at ControlPath for a browser and at page/ below it.
	// It is for those who may use ControlPath, and closed to other sites. nil: there is none.
	Page http.Handler
	// Version is shown at /.
	Version string
	// MaxConns bounds the connections, of all protocols together. Default 10000.
	MaxConns int
	// FirstByteTimeout bounds how long a client may take until it is known what it
	// speaks. Default 10 s.
	FirstByteTimeout time.Duration
	// ErrorLog gets the reason of each connection that did not end cleanly. It may be
	// called from several goroutines at once. nil drops the errors.
	ErrorLog func(error)
	// Metrics answers GET /_overdue/metrics; nil: nothing does.
	Metrics http.Handler
	// NotApplied gets what a client of the administration API stated to no effect, as ErrorLog does.
	NotApplied func(Unapplied)
}

// Unapplied is a setting without effect.
type Unapplied = adminapi.Unapplied

// bodyTimeout is how long a client may take to send the body of a request.
const bodyTimeout = time.Minute

// A Server serves the clients of a broker. Its methods are safe for concurrent
// use.
type Server struct {
	cfg      Config
	listener *listener.Server
	stop     context.CancelFunc // ends the requests that wait
	draining atomic.Bool
}

// New returns a server. It panics if cfg.Broker is nil, which no configuration
// file can cause.
func New(cfg Config) *Server {
	if cfg.Broker == nil {
		panic("brokerhttp: Config.Broker is nil")
	}
	requests, stop := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, stop: stop}
	s.listener = listener.New(listener.Config{
		AMQP: cfg.Broker.ServeConn, HTTP: s.newMux(), Requests: requests, TLS: cfg.TLS, Open: !cfg.Broker.Secured(), Hosts: cfg.Hosts,
		MaxConns: cfg.MaxConns, FirstByteTimeout: cfg.FirstByteTimeout, ErrorLog: cfg.ErrorLog,
	})
	return s
}

// Serve accepts connections until ln fails or the server is closed, and always
// returns an error: ErrServerClosed after Shutdown or Close. It closes ln.
func (s *Server) Serve(ln net.Listener) error { return s.listener.Serve(ln) }

// ServeConn serves one connection, whatever it speaks, and closes it. It returns
// when the connection has ended: nil after a clean end, else the reason.
func (s *Server) ServeConn(nc net.Conn) error { return s.listener.ServeConn(nc) }

// Shutdown stops accepting, ends requests that wait for messages, and returns
// when all requests are answered or ctx ends. From its beginning /health says
// so. AMQP connections stay, over WebSocket too: they end with the broker, or
// with Close.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	s.stop()
	return s.listener.Shutdown(ctx)
}

// Close stops accepting, cuts every connection and waits until the last one has
// ended.
func (s *Server) Close() error {
	s.Drain()
	s.stop()
	return s.listener.Close()
}

// Connections returns the number of connections, of all protocols together.
func (s *Server) Connections() int { return s.listener.Connections() }

// Drain makes /health answer 503, for those who send clients here, and changes
// nothing else. Shutdown begins with it.
func (s *Server) Drain() { s.draining.Store(true) }
