// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
	"overdue/internal/servicebus/sas"
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

// RenewTokens puts a new token for every link upstream: Config.Tokens makes others from now on. A link
// keeps the token that it has while upstream does not accept another.
func (r *Relay) RenewTokens() {
	for _, c := range r.conns.Living() {
		c.mu.Lock()
		k := c.auth.keeper
		c.mu.Unlock()
		if k != nil {
			k.renew()
		}
	}
}

func (r *Relay) log(err error) {
	if r.cfg.ErrorLog != nil {
		r.cfg.ErrorLog(err)
	}
}

// Config configures a Relay. Only Dial is required; the zero value of
// everything else is the default stated.
type Config struct {
	// Dial opens the upstream transport, TLS included. It is called for every
	// client, in the connection's own goroutine and once the client's open has come.
	// Its context ends with the relay, at the latest after HandshakeTimeout.
	Dial     func(context.Context) (net.Conn, error)
	Hostname string // of the upstream open; default what the client says

	// Tokens returns a token of the sidecar's identity for an audience, such as sb://host/entity.
	// It may block until its context ends, and several calls run at once. nil passes the client's
	// own tokens on: $cbs is relayed.
	Tokens func(ctx context.Context, audience string) (Token, error)
	// Admit checks a client when the relay has tokens of its own (see Tokens): its name and
	// password in SASL PLAIN, and each token that it puts. Other mechanisms prove nothing, and
	// their clients have to put tokens. A grant holds for the links that its rights allow: a
	// sender needs Send, a receiver Listen, and each operation of a management node its own
	// right. The client sees the text of the error. Admit must not block. nil admits every
	// client. Keys returns an Admit.
	Admit func(Credentials) (sas.Grant, error)

	// Refuse is called for every link that goes upstream, before Watch; the client gets its error
	// as the refusal. It must not block. nil refuses none.
	Refuse func(Link) *amqp.Error
	// Watch is called when a client attaches a sender, or a receiver of a management node. nil,
	// or a nil Watcher, lets the link pass untouched.
	Watch func(Link) Watcher

	// Observe is called when a client attaches any receiver but that of a management node. nil,
	// or a nil Observer, lets the link pass unobserved.
	Observe func(Link) Observer

	Mechanisms []amqp.Symbol // SASL mechanisms for clients, in the order offered; default those of Service Bus

	MaxConns       int    // clients; default 10000
	MaxFrameSize   uint32 // bytes, of frames that either side accepts; at least 512; default 65536
	ChannelMax     uint16 // highest channel of a connection; default 4999
	MaxLinks       int    // per connection; default 10000
	MaxMessageSize uint64 // bytes, of a delivery on a watched link, unless upstream allows less; default 1 MiB
	MaxBuffered    uint64 // bytes per connection and direction that wait to go on; beyond it, the relay does not read from the sender; default 64 MiB
	MaxPending     int    // deliveries per session that wait for a DeliveryHandler; default 10000
	IncomingWindow uint32 // transfer frames per session; default 512

	IdleTimeout         time.Duration // advertised to clients; a client silent for twice as long is dropped; default 4 min
	UpstreamIdleTimeout time.Duration // advertised to upstream, likewise; default 30 s
	HandshakeTimeout    time.Duration // from a client's first byte to its open, and again from there to upstream's; default 30 s
	WriteTimeout        time.Duration // in which either side must take 64 KiB; default 30 s
	CloseTimeout        time.Duration // in which either side must answer a close; default 5 s

	// ErrorLog is called with the error that ended a connection accepted by Serve, unless it
	// ended cleanly. It is also called when Tokens fails, or upstream refuses its token. Several
	// goroutines may call it at once.
	ErrorLog func(error)
	// Trace is called with every performative: side is "client" or "upstream", dir "in" or
	// "out", and line has the channel and the fields, never a payload. It is called
	// with locks held and must not call back.
	Trace func(side, dir, line string)
}

func (cfg Config) withDefaults() Config {
	if cfg.Mechanisms == nil {
		cfg.Mechanisms = []amqp.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}
	}
	cfg.MaxConns = cmp.Or(cfg.MaxConns, 10_000)
	cfg.MaxFrameSize = cmp.Or(cfg.MaxFrameSize, 65536)
	cfg.MaxFrameSize = max(cfg.MaxFrameSize, amqp.MinMaxFrameSize)
	cfg.ChannelMax = cmp.Or(cfg.ChannelMax, 4999)
	cfg.MaxLinks = cmp.Or(cfg.MaxLinks, 10_000)
	cfg.MaxMessageSize = cmp.Or(cfg.MaxMessageSize, 1<<20)
	cfg.MaxBuffered = cmp.Or(cfg.MaxBuffered, 64<<20)
	cfg.MaxPending = cmp.Or(cfg.MaxPending, 10_000)
	cfg.IncomingWindow = cmp.Or(cfg.IncomingWindow, 512)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 4*time.Minute)
	cfg.UpstreamIdleTimeout = cmp.Or(cfg.UpstreamIdleTimeout, 30*time.Second)
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, 30*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 30*time.Second)
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, 5*time.Second)
	return cfg
}

// handleMax is that of a client's session, as in Service Bus.
const handleMax = 255
