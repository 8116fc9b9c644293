// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	down   error        // why the last dial failed; nil: it did not
	tried  time.Time    // when it had
	own    []*Namespace // of senders with connections of their own
}

// dialRest is between two dials that fail, even if a connection is wanted meanwhile, and however
// long it has been down: the first that is wanted after it has come back finds it within that time.
// Calls in between get the error of the last.
const dialRest = 400 * time.Millisecond

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
var ErrClosed = errors.New("link: namespace is closed")

// claimMargin is how long before its expiry a token is replaced.
const claimMargin = 5 * time.Minute

// New makes a Namespace. It dials when the first receiver is opened.
func New(cfg Config) *Namespace { return &Namespace{cfg: cfg, dialing: newTurn()} }

// Close closes the connection, and those of its senders. Receivers that are open fail.
func (n *Namespace) Close() error {
	n.mu.Lock()
	c, own := n.conn, n.own
	n.conn, n.own, n.closed = nil, nil, true
	n.mu.Unlock()
	var errs []error
	for _, o := range own {
		errs = append(errs, o.Close())
	}
	if c != nil {
		errs = append(errs, c.amqp.Close())
	}
	return errors.Join(errs...)
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
	if err := n.resting(); err != nil {
		return nil, err
	}
	c, err := n.dial(ctx)
	n.mu.Lock()
	if n.down, n.tried = nil, time.Now(); ctx.Err() == nil {
		n.down = err // else it is the caller that has no more time
	}
	closed := n.closed
	if err == nil && !closed {
		n.conn = c
	}
	n.mu.Unlock()
	if err == nil && closed {
		_ = c.amqp.Close() // nobody uses it
		return nil, ErrClosed
	}
	return c, err
}

// resting is why the last dial failed, while another is not tried yet.
func (n *Namespace) resting() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down != nil && time.Since(n.tried) < dialRest {
		return n.down
	}
	return nil
}

// dial opens a connection.
func (n *Namespace) dial(ctx context.Context) (*conn, error) {
	socket, err := n.cfg.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: dial %s: %w", ErrNoConnection, n.cfg.Host, err)
	}
	bare := newBareConn(socket)
	opened, err := amqp.NewConn(ctx, bare, &amqp.ConnOptions{
		HostName:    n.cfg.Host,
		SASLType:    amqp.SASLTypeAnonymous(),
		MaxSessions: 5000, // of Service Bus, see its channel-max
	})
	if err != nil {
		_ = socket.Close() // the error that counts is the one of the handshake
		return nil, fmt.Errorf("%w: open connection to %s: %w", ErrNoConnection, n.cfg.Host, err)
	}
	return &conn{amqp: opened, grants: &bare.grants, claiming: newTurn(), claims: map[string]time.Time{}}, nil
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
