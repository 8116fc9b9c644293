// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

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
	receiving keeper
	sending   keeper
	senders   senders

	mu     sync.Mutex
	closed bool
	own    []*Namespace // of senders with connections of their own
}

// New makes a Namespace. It dials when the first receiver or sender is opened.
func New(cfg Config) *Namespace {
	n := &Namespace{cfg: cfg, senders: senders{byName: map[string]*keptSender{}}}
	for _, k := range []*keeper{&n.receiving, &n.sending} {
		k.dialing, k.open = newTurn(), n.openWire
	}
	return n
}

// Close closes the connections, and those of its senders. Receivers and senders that are open fail.
func (n *Namespace) Close() error {
	n.senders.close()
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

// openWire dials, and opens a connection over the socket.
func (n *Namespace) openWire(ctx context.Context) (*wire, error) {
	socket, err := n.cfg.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: dial %s: %w", ErrNoConnection, n.cfg.Host, err)
	}
	opened, err := client.Open(ctx, socket, n.cfg.Host)
	if err != nil {
		_ = socket.Close() // the error that counts is the one of the handshake
		return nil, fmt.Errorf("%w: open connection to %s: %w", ErrNoConnection, n.cfg.Host, clientError(err))
	}
	return &wire{Conn: opened}, nil
}

func (n *Namespace) audience(entity string) string {
	scheme := "amqps://"
	if n.cfg.Plain {
		scheme = "amqp://"
	}
	return scheme + n.cfg.Host + "/" + entity
}
