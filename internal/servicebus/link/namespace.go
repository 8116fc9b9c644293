// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/Azure/go-amqp"

	"overdue/internal/amqp/client"
)

// Config says how a namespace is reached.
type Config struct {
	Host   string                                      // fully qualified name, with the port if it has one
	Plain  bool                                        // no TLS: audiences begin with amqp:// instead of amqps://
	Dial   func(ctx context.Context) (net.Conn, error) // a connection on which AMQP can begin; TLS, if any, is done
	Tokens TokenSource
}

// A Namespace opens receivers on one connection and senders on another. It is safe for concurrent
// use.
type Namespace struct {
	cfg       Config
	receiving keeper[*receiving]
	sending   keeper[*sending]

	mu     sync.Mutex
	closed bool
	own    []*Namespace // of senders with connections of their own
}

// receiving is a connection to receive over, and for requests.
type receiving struct {
	*amqp.Conn
	grants *grants
	cbs    *rpc // nil: none is open; of whose turn it is to claim
}

// sending is a connection to send over.
type sending struct{ *client.Conn }

// ErrClosed says that the Namespace has been closed.
var ErrClosed = errors.New("link: namespace is closed")

// New makes a Namespace. It dials when the first receiver or sender is opened.
func New(cfg Config) *Namespace {
	n := &Namespace{cfg: cfg}
	n.receiving.dialing, n.receiving.open = newTurn(), n.openReceiving
	n.sending.dialing, n.sending.open = newTurn(), n.openSending
	return n
}

// Close closes the connections, and those of its senders. Receivers and senders that are open fail.
func (n *Namespace) Close() error {
	n.mu.Lock()
	own := n.own
	n.own, n.closed = nil, true
	n.mu.Unlock()
	var errs []error
	for _, o := range own {
		errs = append(errs, o.Close())
	}
	return errors.Join(append(errs, n.receiving.close(), n.sending.close())...)
}

func (n *Namespace) openReceiving(ctx context.Context) (*receiving, error) {
	return openWire(ctx, &n.cfg, func(socket net.Conn) (*receiving, error) {
		bare := newBareConn(socket)
		opened, err := amqp.NewConn(ctx, bare, &amqp.ConnOptions{
			HostName:    n.cfg.Host,
			SASLType:    amqp.SASLTypeAnonymous(),
			MaxSessions: 5000, // of Service Bus, see its channel-max
		})
		return &receiving{Conn: opened, grants: &bare.grants}, err
	})
}

func (n *Namespace) openSending(ctx context.Context) (*sending, error) {
	return openWire(ctx, &n.cfg, func(socket net.Conn) (*sending, error) {
		opened, err := client.Open(ctx, socket, n.cfg.Host)
		return &sending{opened}, sendingError(err)
	})
}

// openWire dials, and opens a connection over the socket.
func openWire[W wire](ctx context.Context, cfg *Config, open func(net.Conn) (W, error)) (opened W, err error) {
	socket, err := cfg.Dial(ctx)
	if err != nil {
		return opened, fmt.Errorf("%w: dial %s: %w", ErrNoConnection, cfg.Host, err)
	}
	if opened, err = open(socket); err != nil {
		_ = socket.Close() // the error that counts is the one of the handshake
		return opened, fmt.Errorf("%w: open connection to %s: %w", ErrNoConnection, cfg.Host, err)
	}
	return opened, nil
}

// ErrNoConnection says that no connection can be opened.
var ErrNoConnection = errors.New("link: no connection")

// Lost reports whether err is about the connection to the namespace, and not about what was asked
// over it: there is none, it has ended, or nobody has answered in time.
func Lost(err error) bool {
	var connection *amqp.ConnError
	var network net.Error
	return errors.Is(err, ErrNoConnection) || errors.As(err, &connection) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) || cutOff(err)
}

// cutOff reports whether a link or a session has ended with its connection: nobody has said why.
func cutOff(err error) bool {
	var link *amqp.LinkError
	var session *amqp.SessionError
	switch {
	case errors.As(err, &link):
		return link.RemoteErr == nil
	case errors.As(err, &session):
		return session.RemoteErr == nil
	}
	return false
}

func (n *Namespace) audience(entity string) string {
	scheme := "amqps://"
	if n.cfg.Plain {
		scheme = "amqp://"
	}
	return scheme + n.cfg.Host + "/" + entity
}
