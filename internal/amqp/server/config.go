// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"time"

	"overdue/internal/amqp"
)

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
