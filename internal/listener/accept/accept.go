// SPDX-License-Identifier: Apache-2.0

// Package accept accepts and bounds connections for servers of any protocol.
//
// A Table survives a lack of descriptors, bounds the number of connections and waits for
// them at the end. Unauthenticated bounds the cost of connections without a valid token.
// Write sends to a peer that may not read.
package accept

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

var (
	// ErrClosed is returned by Serve and Enter once Close has been called.
	ErrClosed = errors.New("server closed")
	// ErrTooMany is wrapped by Enter when the table is full.
	ErrTooMany = errors.New("too many connections")
)

// A Table tracks the listeners and connections of one server. C is the server's
// type of a connection. The methods are safe for concurrent use.
type Table[C comparable] struct {
	name string // of the server, in errors
	max  int
	log  func(error)

	unauthenticated *Unauthenticated // evicted when the table is full; see Guard

	mu        sync.Mutex
	closed    bool
	nextID    uint64
	conns     map[C]struct{}
	serving   int // goroutines of Serve, which end after they have logged why a connection ended
	listeners map[net.Listener]struct{}
	gone      chan struct{} // made by the first waiter; closed when the table is empty
}

// New returns a table for at most that many connections. log, which may be nil, gets
// the reasons why accepting pauses and why connections of Serve end. It may be called
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

// Guard sets the connections to evict for newcomers when the table is full or the process has no
// descriptor left. Call it before the first connection.
func (t *Table[C]) Guard(s *Unauthenticated) { t.unauthenticated = s }

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
			t.begin()
			go func() {
				defer t.end()
				if err := serve(nc); err != nil && !t.Closed() {
					t.log(err)
				}
			}()
		case t.Closed():
			return ErrClosed
		case !temporary(err):
			return fmt.Errorf("%s: accept: %w", t.name, err)
		default:
			// Out of descriptors: open connections will free some, so wait and continue.
			t.log(fmt.Errorf("%s: accept: %w", t.name, err))
			t.unauthenticated.Cut()
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
		}
	}
}

// temporary reports whether accepting may succeed later, because the process or the
// peer failed, not the listener.
func temporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Enter adds a connection; the caller calls Leave later. begin makes the entry, under the
// table's lock, with a number that no other connection has. Enter closes a connection that
// it refuses. If the table is full, it evicts an unauthenticated connection, see Guard;
// until that has left, there is one connection more than the bound.
func (t *Table[C]) Enter(nc net.Conn, begin func(id uint64) C) (C, error) {
	unauthenticated, g := t.unauthenticated, QuotaOf(nc)
	if unauthenticated == nil && g.Limited() {
		unauthenticated = g.set
	}
	t.mu.Lock()
	if full := len(t.conns) >= t.max; t.closed || full && (!unauthenticated.Cut() || g.Why() != nil) {
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

// Leave removes a connection that has ended.
func (t *Table[C]) Leave(c C) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	t.leftLocked()
}

func (t *Table[C]) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving++
}

func (t *Table[C]) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving--
	t.leftLocked()
}

// leftLocked wakes those that wait for the last connection.
func (t *Table[C]) leftLocked() {
	if t.emptyLocked() && t.gone != nil {
		close(t.gone)
		t.gone = nil
	}
}

func (t *Table[C]) emptyLocked() bool { return len(t.conns) == 0 && t.serving == 0 }

// Close closes the listeners, refuses new connections, and returns the open ones.
// It may be called again.
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

// Gone returns a channel that is closed when the last connection has left, and its reason is
// logged. Close comes first.
func (t *Table[C]) Gone() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.emptyLocked() {
		done := make(chan struct{})
		close(done)
		return done
	}
	if t.gone == nil {
		t.gone = make(chan struct{})
	}
	return t.gone
}

// Shutdown closes the table, ends its connections and waits until they have left. If ctx ends
// first, it cuts those that are left, and returns the error of ctx after they have left.
func (t *Table[C]) Shutdown(ctx context.Context, end, cut func(C)) error {
	for _, c := range t.Close() {
		end(c)
	}
	select {
	case <-t.Gone():
		return nil
	case <-ctx.Done():
		t.Cut(cut)
		return ctx.Err()
	}
}

// Cut closes the table, cuts its connections and waits until they have left.
func (t *Table[C]) Cut(cut func(C)) {
	for _, c := range t.Close() {
		cut(c)
	}
	<-t.Gone()
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

// IsTimeout reports whether err says that a deadline of a connection has passed.
func IsTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// writeChunk is how many bytes share a deadline.
const writeChunk = 64 << 10

// Write writes buf, piece by piece so that the deadline is about progress and not about the size of
// a burst. It asks timeout before each piece.
func Write(nc net.Conn, buf []byte, timeout func() time.Duration) error {
	for len(buf) > 0 {
		piece := buf[:min(len(buf), writeChunk)]
		if err := nc.SetWriteDeadline(time.Now().Add(timeout())); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if _, err := nc.Write(piece); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("peer does not read: %w", err)
			}
			return fmt.Errorf("write: %w", err)
		}
		buf = buf[len(piece):]
	}
	return nil
}
