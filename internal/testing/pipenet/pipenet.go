// SPDX-License-Identifier: Apache-2.0

// Package pipenet is a network in memory, with faults.
//
// A [Network] listens and dials like package net, over [net.Pipe]. Nothing in it waits on the
// operating system. So testing/synctest takes a program that talks over it for idle as soon as all
// its goroutines wait, and fake time moves on. A pipe has no buffer: a write returns when the other
// side has read it. Two peers that write from their read loops deadlock here where TCP would hide
// it, which is wanted in tests.
//
// Faults are set on the network and hit the connections that exist and those
// that come: [Network.Cut], [Network.CutAfter], [Network.Stall],
// [Network.Delay], [Network.Refuse]. Each has a direction, because half-open
// connections are where protocols break.
//
// A Network belongs to the synctest bubble in which it was made.
package pipenet

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// backlog is the number of dialled connections a listener holds before Dial
// waits for an Accept.
const backlog = 128

// A Network is a set of listeners, the connections to them and the faults they
// suffer. Its methods are safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	conns     map[*conn]struct{} // both ends of every live connection
	faults    faults
}

// New returns a network without listeners and without faults.
func New() *Network {
	n := &Network{
		listeners: make(map[string]*listener),
		conns:     make(map[*conn]struct{}),
	}
	n.faults.init()
	return n
}

// An addr is a name; there is nothing to resolve.
type addr string

func (addr) Network() string  { return "pipe" }
func (a addr) String() string { return string(a) }

// Listen makes addr reachable. The name is free text, compared as it is. An
// address in use is an error that wraps [syscall.EADDRINUSE].
func (n *Network) Listen(name string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, taken := n.listeners[name]; taken {
		return nil, opError("listen", addr(name), syscall.EADDRINUSE)
	}
	l := &listener{
		net:     n,
		name:    addr(name),
		pending: make(chan *conn, backlog),
		closed:  make(chan struct{}),
	}
	n.listeners[name] = l
	return l, nil
}

// Dial connects to a listener. It fails with an error that wraps
// [syscall.ECONNREFUSED] when nobody listens or [Network.Refuse] is on, and
// with the context's error when the listener's backlog stays full.
func (n *Network) Dial(ctx context.Context, name string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[name]
	refused := l == nil || n.faults.refuse
	n.mu.Unlock()
	if refused {
		return nil, opError("dial", addr(name), syscall.ECONNREFUSED)
	}

	a, b := net.Pipe()
	dialer := newConn(n, a, "dialer", addr(name), toListener)
	accepted := newConn(n, b, addr(name), "dialer", toDialer)
	dialer.peer, accepted.peer = accepted, dialer
	n.mu.Lock()
	n.conns[dialer], n.conns[accepted] = struct{}{}, struct{}{}
	n.mu.Unlock()

	var err error
	select {
	case l.pending <- accepted:
		// A listener that closed meanwhile has emptied its backlog, or will
		// never look at it again; nobody else would close this connection.
		select {
		case <-l.closed:
			err = syscall.ECONNREFUSED
		default:
			return dialer, nil
		}
	case <-l.closed:
		err = syscall.ECONNREFUSED
	case <-ctx.Done():
		err = ctx.Err()
	}
	sever(err, dialer, accepted)
	return nil, opError("dial", addr(name), err)
}

// Conns returns the number of live connections.
func (n *Network) Conns() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for c := range n.conns {
		if c.out == toListener {
			count++
		}
	}
	return count
}

func (n *Network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// A listener hands out the accepting ends of dialled connections.
type listener struct {
	net     *Network
	name    addr
	pending chan *conn
	closed  chan struct{}
	once    sync.Once
}

// Accept waits for a connection. After Close it returns an error that wraps
// [net.ErrClosed].
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, opError("accept", l.name, net.ErrClosed)
	default:
	}
	select {
	case c := <-l.pending:
		return c, nil
	case <-l.closed:
		return nil, opError("accept", l.name, net.ErrClosed)
	}
}

// Close frees the address and resets the connections nobody has accepted.
// Accepted ones live on.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, string(l.name))
		l.net.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.pending:
				sever(syscall.ECONNRESET, c, c.peer)
			default:
				return
			}
		}
	})
	return nil
}

// Addr returns the name that was listened on.
func (l *listener) Addr() net.Addr { return l.name }

// opError dresses err as package net does: a [net.Error], which is what
// clients look for when they decide whether to reconnect.
func opError(op string, a net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "pipe", Addr: a, Err: err}
}
