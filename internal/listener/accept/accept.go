// SPDX-License-Identifier: Apache-2.0

// Package accept is what the servers of this module have in common whatever
// they speak: accepting that outlives a lack of descriptors, a bound on the
// connections, an end that waits for them, and writing to a peer that may not
// read.
package accept

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

var (
	// ErrClosed is returned by Serve and Enter once Close has been called.
	ErrClosed = errors.New("server closed")
	// ErrTooMany is wrapped by what Enter returns when there are as many
	// connections as the table takes.
	ErrTooMany = errors.New("too many connections")
)

// A Table holds the listeners and the connections of one server. C is what the
// server keeps of a connection. Its methods are safe for concurrent use.
type Table[C comparable] struct {
	name string // of the server, in errors
	max  int
	log  func(error)

	strangers *Strangers // whose connections yield where there is no room; see Guard

	mu        sync.Mutex
	closed    bool
	nextID    uint64
	conns     map[C]struct{}
	listeners map[net.Listener]struct{}
	gone      chan struct{} // made by the first waiter, closed when the last connection of a closed table leaves
}

// New returns a table for at most so many connections. log, which may be nil, is
// told why accepting pauses and how connections of Serve end; it may be called
// from several goroutines at once.
func New[C comparable](name string, most int, log func(error)) *Table[C] {
	if log == nil {
		log = func(error) {}
	}
	return &Table[C]{
		name: name, max: most, log: log,
		conns: make(map[C]struct{}), listeners: make(map[net.Listener]struct{}),
	}
}

// Guard says whose connections yield to newcomers when the table is full, or when there are no descriptors left. It
// comes before the first connection.
func (t *Table[C]) Guard(s *Strangers) { t.strangers = s }

const acceptPause = 5 * time.Millisecond

// Serve accepts connections until the listener fails or the table is closed, and
// always returns an error: ErrClosed after Close. It calls serve with each, in a
// goroutine of its own, so that accepting never waits for a peer. It closes ln.
func (t *Table[C]) Serve(ln net.Listener, serve func(net.Conn) error) error {
	defer ln.Close()
	if !t.addListener(ln) {
		return ErrClosed
	}
	defer t.removeListener(ln)
	pause := acceptPause
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = acceptPause
			go func() {
				if err := serve(nc); err != nil && !t.Closed() {
					t.log(err)
				}
			}()
		case t.Closed():
			return ErrClosed
		case !temporary(err):
			return fmt.Errorf("%s: accept: %w", t.name, err)
		default:
			// Out of descriptors: the connections that are open free them, so wait and go on.
			t.log(fmt.Errorf("%s: accept: %w", t.name, err))
			t.strangers.Cut()
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
		}
	}
}

// temporary reports whether accepting may succeed later: what fails is this
// process or that peer, not the listener.
func temporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Enter takes a connection in; Leave has to follow. What is kept of it is made by
// begin, under the table's lock, with a number that no other connection has. A
// connection that is refused is closed: nothing was promised to its peer. Where the table is full, a stranger yields,
// see Guard; until it has left, there is one more than the bound.
func (t *Table[C]) Enter(nc net.Conn, begin func(id uint64) C) (C, error) {
	strangers, g := t.strangers, GuestOf(nc)
	if strangers == nil && g.Stranger() {
		strangers = g.room
	}
	t.mu.Lock()
	if full := len(t.conns) >= t.max; t.closed || full && (!strangers.Cut() || g.Why() != nil) {
		closed := t.closed
		t.mu.Unlock()
		nc.Close()
		var none C
		if closed {
			return none, ErrClosed
		}
		return none, fmt.Errorf("%s: %w: refused %v", t.name, ErrTooMany, nc.RemoteAddr())
	}
	defer t.mu.Unlock()
	t.nextID++
	c := begin(t.nextID)
	t.conns[c] = struct{}{}
	return c, nil
}

// Leave follows the end of a connection.
func (t *Table[C]) Leave(c C) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	if len(t.conns) == 0 && t.gone != nil {
		close(t.gone)
		t.gone = nil
	}
}

// Close closes the listeners, lets nobody in any more, and returns the connections
// that live. It may be called again.
func (t *Table[C]) Close() []C {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for ln := range t.listeners {
		ln.Close() // its only error is that it is closed already
	}
	return t.livingLocked()
}

// Len returns how many connections have entered and not left.
func (t *Table[C]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.conns)
}

// Living returns the connections that have entered and not left.
func (t *Table[C]) Living() []C {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.livingLocked()
}

func (t *Table[C]) livingLocked() []C { return slices.Collect(maps.Keys(t.conns)) }

// Gone returns a channel that is closed when the last connection has left. Close
// comes first.
func (t *Table[C]) Gone() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.conns) == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if t.gone == nil {
		t.gone = make(chan struct{})
	}
	return t.gone
}

// Closed reports whether Close has been called.
func (t *Table[C]) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

func (t *Table[C]) addListener(ln net.Listener) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.listeners[ln] = struct{}{}
	return true
}

func (t *Table[C]) removeListener(ln net.Listener) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.listeners, ln)
}
