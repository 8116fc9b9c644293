// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"net"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/sas"
)

// Config configures a Relay. Only Dial is required; the zero value of
// everything else is the default stated.
type Config struct {
	// Dial opens the upstream transport, TLS included. It is called for every
	// client, in the connection's own goroutine and once the client's open has come.
	// Its context ends with the relay, at the latest after HandshakeTimeout.
	Dial     func(context.Context) (net.Conn, error)
	Hostname string // of the upstream open; default what the client says

	// Tokens is the sidecar's identity: a token for an audience, such as
	// sb://host/entity. It may wait, but no longer than its context, and several calls
	// come at once. nil passes the client's own tokens on: $cbs is relayed.
	Tokens func(ctx context.Context, audience string) (Token, error)
	// Admit judges a client where tokens end here (see Tokens): by its name and
	// password in SASL PLAIN, and by each token that it puts. Other mechanisms prove
	// nothing, and their clients have to put tokens. What is admitted holds for the
	// links that the grant has the rights for: a sender's is Send, a receiver's
	// Listen, and each operation of a management node has its own. The text of the
	// error is shown to the client. Admit must not block. nil admits all, without
	// asking. Keys makes one.
	Admit func(Credentials) (sas.Grant, error)

	// Refuse is asked for every link that goes upstream, before Watch; its error is
	// what the client is refused with. It must not block. nil refuses none.
	Refuse func(Link) *amqp.Error
	// Watch is asked when a client attaches a sender, or a receiver of a management
	// node. nil, or a nil Watcher, lets the link pass untouched.
	Watch func(Link) Watcher

	// Observe is asked when a client attaches a receiver of anything but a management
	// node. nil, or a nil Observer, lets the link pass unseen.
	Observe func(Link) Observer

	Mechanisms []amqp.Symbol // SASL mechanisms for clients, in the order offered; default those of Service Bus

	MaxConns       int    // clients; default 10000
	MaxFrameSize   uint32 // bytes, of frames that either side accepts; at least 512; default 65536
	ChannelMax     uint16 // highest channel of a connection; default 4999
	MaxLinks       int    // per connection; default 10000
	MaxMessageSize uint64 // bytes, of a delivery on a watched link, where upstream allows no less; default 1 MiB
	MaxBuffered    uint64 // bytes per connection and direction, of what waits to go on or to be complete; beyond it, its sender is not read; default 64 MiB
	MaxPending     int    // deliveries per session that wait for a DeliveryHandler; default 10000
	IncomingWindow uint32 // transfer frames per session; default 512

	IdleTimeout         time.Duration // advertised to clients; one silent for twice as long is dropped; default 4 min
	UpstreamIdleTimeout time.Duration // advertised to upstream, likewise; default 30 s
	HandshakeTimeout    time.Duration // from a client's first byte to its open, and again from there to upstream's; default 30 s
	WriteTimeout        time.Duration // in which either side must take 64 KiB; default 30 s
	CloseTimeout        time.Duration // in which either side must answer a close; default 5 s

	// ErrorLog is called with the reason why a connection accepted by Serve ended, unless it ended
	// cleanly, and when a token from Tokens is not to be had, or is refused upstream.
	// It may be called from several goroutines at once.
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

// What is not worth a setting.
const (
	outSoftLimit      = 256 << 10 // bytes of unwritten output at which transfers wait
	outHardLimit      = 4 << 20   // bytes at which the read loop that causes them waits
	outStrangerLimit  = 16 << 10  // the same, of a client that has shown no good token
	outEager          = 32 << 10  // bytes worth a write before the read loop has come to rest
	outKeep           = 512 << 10 // bytes of capacity of a buffer that is used again
	maxSASLFrame      = 4096      // bytes; the spec says 512, initial responses with tokens are longer
	minIdleTimeout    = 100       // milliseconds; less would have us do little but keep-alives
	idleTimeoutFactor = 2         // part 2 section 4.5: what is advertised should be half of what is enforced
)
