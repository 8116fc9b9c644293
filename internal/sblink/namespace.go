// SPDX-License-Identifier: Apache-2.0

package sblink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
)

// Config says how a namespace is reached.
type Config struct {
	Host   string                                      // fully qualified name, with the port if it has one
	Plain  bool                                        // no TLS: audiences begin with amqp:// instead of amqps://
	Dial   func(ctx context.Context) (net.Conn, error) // a connection on which AMQP can begin; TLS, if any, is done
	Tokens TokenSource
}

// A Namespace opens receivers on one connection. It is safe for concurrent use.
type Namespace struct {
	cfg Config

	dialing turn // all who come meanwhile want that very connection

	mu     sync.Mutex
	conn   *conn
	closed bool
}

// turn lets one through at a time. Unlike a mutex it can be waited for under a context.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { <-t }

// conn is one connection and what was negotiated on it.
type conn struct {
	amqp   *amqp.Conn
	grants *grants

	claiming turn                 // $cbs takes one pair of links per connection, so claims go one by one
	claims   map[string]time.Time // when to claim an audience again; of whose turn it is
}

// ErrClosed says that the Namespace has been closed.
var ErrClosed = errors.New("sblink: namespace is closed")

// claimMargin is how long before its expiry a token is replaced.
const claimMargin = 5 * time.Minute

// New makes a Namespace. It dials when the first receiver is opened.
func New(cfg Config) *Namespace { return &Namespace{cfg: cfg, dialing: newTurn()} }

// Close closes the connection. Receivers that are open fail.
func (n *Namespace) Close() error {
	n.mu.Lock()
	c := n.conn
	n.conn, n.closed = nil, true
	n.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.amqp.Close()
}

// connect is the connection that is up, or a new one.
func (n *Namespace) connect(ctx context.Context) (*conn, error) {
	if err := n.dialing.take(ctx); err != nil {
		return nil, err
	}
	defer n.dialing.give()
	if c, err := n.current(); c != nil || err != nil {
		return c, err
	}
	socket, err := n.cfg.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("sblink: dial %s: %w", n.cfg.Host, err)
	}
	bare := newBareConn(socket)
	opened, err := amqp.NewConn(ctx, bare, &amqp.ConnOptions{
		HostName:    n.cfg.Host,
		SASLType:    amqp.SASLTypeAnonymous(),
		MaxSessions: 5000, // of Service Bus, see its channel-max
	})
	if err != nil {
		_ = socket.Close() // the error that counts is the one of the handshake
		return nil, fmt.Errorf("sblink: open connection to %s: %w", n.cfg.Host, err)
	}
	c := &conn{amqp: opened, grants: &bare.grants, claiming: newTurn(), claims: map[string]time.Time{}}
	n.mu.Lock()
	closed := n.closed
	if !closed {
		n.conn = c
	}
	n.mu.Unlock()
	if closed {
		_ = opened.Close() // nobody uses it
		return nil, ErrClosed
	}
	return c, nil
}

// current is the connection that is up, nil when there is none.
func (n *Namespace) current() (*conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	if n.conn != nil {
		select {
		case <-n.conn.amqp.Done():
			n.conn = nil
		default:
		}
	}
	return n.conn, nil
}

// drop forgets c after an error that leaves its state in doubt.
func (n *Namespace) drop(c *conn) {
	n.mu.Lock()
	if n.conn == c {
		n.conn = nil
	}
	n.mu.Unlock()
	_ = c.amqp.Close() // it is in doubt already
}

func (n *Namespace) audience(entity string) string {
	scheme := "amqps://"
	if n.cfg.Plain {
		scheme = "amqp://"
	}
	return scheme + n.cfg.Host + "/" + entity
}
