// SPDX-License-Identifier: Apache-2.0

package amqpserver

import (
	"context"
	"net"
	"time"

	"overdue/internal/amqp"
)

// Bodies follow. Signatures are final.

// Config configures a Server. Only Handler is required.
type Config struct {
	Handler          Handler
	Mechanisms       []amqp.Symbol
	SASLWelcome      string
	ContainerID      string
	MaxFrameSize     uint32
	ChannelMax       uint16
	MaxLinks         int
	MaxConns         int
	MaxMessageSize   uint64
	MaxUnsettled     int
	IncomingWindow   uint32
	IdleTimeout      time.Duration
	HandshakeTimeout time.Duration
	WriteTimeout     time.Duration
	ErrorLog         func(error)
	Trace            func(dir, line string)
}

type Server struct{}

var ErrServerClosed error

func New(cfg Config) *Server                         { panic("soon") }
func (s *Server) Serve(ln net.Listener) error        { panic("soon") }
func (s *Server) ServeConn(nc net.Conn) error        { panic("soon") }
func (s *Server) Shutdown(ctx context.Context) error { panic("soon") }
func (s *Server) Close() error                       { panic("soon") }

type Conn struct{}

func (c *Conn) ID() uint64                                            { panic("soon") } // unique within the process' server
func (c *Conn) RemoteContainerID() string                             { panic("soon") }
func (c *Conn) Hostname() string                                      { panic("soon") } // open.hostname
func (c *Conn) Open() *amqp.Open                                      { panic("soon") } // the peer's
func (c *Conn) RemoteAddr() net.Addr                                  { panic("soon") }
func (c *Conn) NetConn() net.Conn                                     { panic("soon") }
func (c *Conn) SASL() (mechanism amqp.Symbol, initialResponse []byte) { panic("soon") }
func (c *Conn) Close(e *amqp.Error)                                   { panic("soon") } // from any goroutine; does not wait

type Session struct{}

func (s *Session) Conn() *Conn       { panic("soon") }
func (s *Session) Channel() uint16   { panic("soon") } // the peer's
func (s *Session) End(e *amqp.Error) { panic("soon") }

type SinkLink struct{ Reply Reply }

func (l *SinkLink) Conn() *Conn                               { panic("soon") }
func (l *SinkLink) Session() *Session                         { panic("soon") }
func (l *SinkLink) Name() string                              { panic("soon") }
func (l *SinkLink) Attach() *amqp.Attach                      { panic("soon") } // as the peer sent it; do not modify
func (l *SinkLink) Settle(d *Delivery, st amqp.DeliveryState) { panic("soon") }
func (l *SinkLink) Detach(e *amqp.Error)                      { panic("soon") }
func (l *SinkLink) Accept(s Sink) bool                        { panic("soon") }
func (l *SinkLink) Refuse(e *amqp.Error)                      { panic("soon") }

type SourceLink struct{ Reply Reply }

func (l *SourceLink) Conn() *Conn                                 { panic("soon") }
func (l *SourceLink) Session() *Session                           { panic("soon") }
func (l *SourceLink) Name() string                                { panic("soon") }
func (l *SourceLink) Attach() *amqp.Attach                        { panic("soon") }
func (l *SourceLink) Credit() uint32                              { panic("soon") }
func (l *SourceLink) SendOut(o Outgoing) (*Outgone, error)        { panic("soon") } // waits for window and buffer; not from the read loop; nil Outgone when pre-settled
func (l *SourceLink) Post(o Outgoing) error                       { panic("soon") } // never waits; kept until credit, window and buffer allow; any goroutine; owns o.Payload
func (l *SourceLink) Drained()                                    { panic("soon") }
func (l *SourceLink) Settle(ds []*Outgone, st amqp.DeliveryState) { panic("soon") } // also unasked, when the source gives up on them
func (l *SourceLink) Detach(e *amqp.Error)                        { panic("soon") }
func (l *SourceLink) Accept(s Source) bool                        { panic("soon") } // answers a deferred attach; false: the peer has gone
func (l *SourceLink) Refuse(e *amqp.Error)                        { panic("soon") }
