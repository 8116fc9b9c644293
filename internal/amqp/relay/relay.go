// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"net"

	"overdue/internal/listener/accept"
)

// ErrClosed is returned by Serve and ServeConn after Shutdown or Close.
var ErrClosed = accept.ErrClosed

// ErrTooManyConns is returned by ServeConn when Config.MaxConns clients are
// being served.
var ErrTooManyConns = accept.ErrTooMany

// A Relay serves AMQP clients, each over an upstream connection of its own.
type Relay struct {
	cfg    Config
	ctx    context.Context // of every dial
	cancel context.CancelFunc
	conns  *accept.Table[*conn]

	unauthenticated *accept.Unauthenticated // clients that have shown no good token yet; nil: they need none, see Config.Admit
}

// New returns a relay. It panics if cfg.Dial is nil, which is a bug in the caller.
func New(cfg Config) *Relay {
	if cfg.Dial == nil {
		panic("relay: Config.Dial is nil")
	}
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	r := &Relay{cfg: cfg, ctx: ctx, cancel: cancel, conns: accept.New[*conn]("relay", cfg.MaxConns, cfg.ErrorLog)}
	if cfg.Tokens != nil && cfg.Admit != nil {
		r.unauthenticated = accept.NewUnauthenticated(accept.Limits{})
	}
	r.conns.Guard(r.unauthenticated)
	return r
}

// Serve accepts clients until the listener fails or the relay is closed, and
// always returns an error: ErrClosed after Shutdown or Close. Accepting never
// waits for a client or for upstream. It closes ln.
func (r *Relay) Serve(ln net.Listener) error { return r.conns.Serve(ln, r.ServeConn) }

// ServeConn serves one client and closes its connection and the one upstream. It returns when
// both have ended and all their goroutines have. It returns nil after a clean close, else the
// reason, which is not passed to Config.ErrorLog.
func (r *Relay) ServeConn(nc net.Conn) error {
	c, err := r.conns.Enter(nc, func(id uint64) *conn { return newConn(r, nc, id) })
	if err != nil {
		return err
	}
	defer r.conns.Leave(c)
	defer c.quota.Leave()
	c.quota.Ends(c.cut)
	if err := c.serve(); err != nil {
		return fmt.Errorf("relay: connection from %v: %w", nc.RemoteAddr(), err)
	}
	return nil
}

// Shutdown stops accepting connections and waits until upstream has settled all pending
// deliveries. Then it closes every connection with amqp:connection:forced and waits for their
// end. New deliveries do not go on, so no client sees them accepted. When ctx ends first,
// Shutdown cuts the remaining connections and returns the error of ctx after they have ended.
func (r *Relay) Shutdown(ctx context.Context) error {
	defer r.cancel()
	return r.conns.Shutdown(ctx, (*conn).drain, (*conn).cut)
}

// Close stops accepting, cuts every connection and waits until all have ended.
func (r *Relay) Close() error {
	r.cancel() // the dials
	r.conns.Cut((*conn).cut)
	return nil
}

func (r *Relay) log(err error) {
	if r.cfg.ErrorLog != nil {
		r.cfg.ErrorLog(err)
	}
}
