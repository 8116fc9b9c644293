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

	mu     sync.Mutex // held while dialling: all who come meanwhile want that very connection
	conn   *conn
	closed bool
}

// conn is one connection and what was negotiated on it.
type conn struct {
	amqp *amqp.Conn

	mu     sync.Mutex           // $cbs takes one pair of links per connection, so claims go one by one
	claims map[string]time.Time // when to claim an audience again
}

// ErrClosed says that the Namespace has been closed.
var ErrClosed = errors.New("sblink: namespace is closed")

// claimMargin is how long before its expiry a token is replaced.
const claimMargin = 5 * time.Minute

// New makes a Namespace. It dials when the first receiver is opened.
func New(cfg Config) *Namespace { return &Namespace{cfg: cfg} }

// Close closes the connection. Receivers that are open fail.
func (n *Namespace) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.conn == nil {
		return nil
	}
	c := n.conn
	n.conn = nil
	return c.amqp.Close()
}

// connect is the connection that is up, or a new one.
func (n *Namespace) connect(ctx context.Context) (*conn, error) {
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
			return n.conn, nil
		}
	}
	socket, err := n.cfg.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("sblink: dial %s: %w", n.cfg.Host, err)
	}
	c, err := amqp.NewConn(ctx, socket, &amqp.ConnOptions{
		HostName:    n.cfg.Host,
		SASLType:    amqp.SASLTypeAnonymous(),
		MaxSessions: 5000, // of Service Bus, see its channel-max
	})
	if err != nil {
		_ = socket.Close() // the error that counts is the one of the handshake
		return nil, fmt.Errorf("sblink: open connection to %s: %w", n.cfg.Host, err)
	}
	n.conn = &conn{amqp: c, claims: map[string]time.Time{}}
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
