// SPDX-License-Identifier: Apache-2.0

package pipenet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A conn is one end of a connection: a net.Pipe end whose bytes pass through
// the faults of the network on their way out.
type conn struct {
	net           *Network
	inner         net.Conn
	peer          *conn
	local, remote addr
	out           int // direction of what this end writes; the other one is read

	writing chan struct{} // token of the one writer; a mutex would hide a waiting writer from synctest
	line    line          // bytes under a delay

	// For the waits at a gate; the pipe knows them too.
	readDeadline, writeDeadline deadline

	dead chan struct{} // closed when this end is closed or cut
	once sync.Once
	err  error // why dead; ONLY read after dead is closed
}

func newConn(n *Network, inner net.Conn, local, remote addr, out int) *conn {
	c := &conn{
		net:     n,
		inner:   inner,
		local:   local,
		remote:  remote,
		out:     out,
		writing: make(chan struct{}, 1),
		dead:    make(chan struct{}),
	}
	c.line.init(c)
	c.readDeadline.init()
	c.writeDeadline.init()
	return c
}

// Write sends b through the faults of this direction.
func (c *conn) Write(b []byte) (int, error) {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-c.dead:
		return 0, c.fail("write", c.err)
	}
	if c.isDead() {
		return 0, c.fail("write", c.err)
	}
	if by := c.net.delayOf(c.out); by > 0 || c.line.busy() {
		if err := c.line.put(b, by, c.writeDeadline.done()); err != nil {
			return 0, c.fail("write", err)
		}
		return len(b), nil
	}
	n, err := c.deliver(b, c.writeDeadline.done())
	if err != nil {
		return n, c.fail("write", err)
	}
	return n, nil
}

// deliver waits at the gate, takes b from the allowance of CutAfter and hands
// it to the pipe. late ends the wait at the gate.
func (c *conn) deliver(b []byte, late <-chan struct{}) (int, error) {
	if err := c.pass(c.out, late); err != nil {
		return 0, err
	}
	granted := c.net.allow(c.out, len(b))
	n, err := c.inner.Write(b[:granted])
	if err == nil && granted < len(b) {
		sever(syscall.ECONNRESET, c, c.peer)
		err = syscall.ECONNRESET
	}
	return n, err
}

// pass waits until bytes may pass in direction dir.
func (c *conn) pass(dir int, late <-chan struct{}) error {
	for gate := c.net.gate(dir); gate != nil; gate = c.net.gate(dir) {
		select {
		case <-gate:
		case <-c.dead:
			return c.err
		case <-late:
			return os.ErrDeadlineExceeded
		}
	}
	return nil
}

// Read reads what the other end wrote.
func (c *conn) Read(b []byte) (int, error) {
	if c.line.isClosing() {
		return 0, c.fail("read", net.ErrClosed)
	}
	n, err := c.inner.Read(b)
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) && !c.isDead() {
		// The peer closed; a stalled direction keeps that news back too.
		if err := c.pass(1-c.out, c.readDeadline.done()); err != nil {
			return n, c.fail("read", err)
		}
		return n, io.EOF
	}
	return n, c.fail("read", err)
}

// fail names the operation and prefers the reason this end died for over what
// the closed pipe says.
func (c *conn) fail(op string, err error) error {
	if c.isDead() {
		err = c.err
	} else if c.line.isClosing() {
		err = net.ErrClosed
	} else if errors.Is(err, io.ErrClosedPipe) {
		err = syscall.EPIPE // the other side is gone
	}
	return opError(op, c.remote, err)
}

// Close ends the connection in both directions. Bytes still under a delay
// arrive first, if the other side takes them within five seconds.
func (c *conn) Close() error {
	if c.line.finish() {
		return nil // the line closes the connection behind its last byte
	}
	c.sever(net.ErrClosed)
	return nil
}

// sever ends this side at once, for the given reason. Only the first reason
// counts.
func (c *conn) sever(why error) { sever(why, c) }

// sever ends several sides for one reason. All of them know it before the first
// pipe closes, else a reader would take a cut for the peer's close.
func sever(why error, ends ...*conn) {
	for _, c := range ends {
		c.once.Do(func() {
			c.err = why
			close(c.dead)
			c.net.forget(c)
		})
	}
	for _, c := range ends {
		_ = c.inner.Close() // a pipe's Close never fails and may be repeated
	}
}

func (c *conn) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.readDeadline.set(t)
	return c.line.setDeadline(c.inner.SetReadDeadline, t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline.set(t)
	return c.line.setDeadline(c.inner.SetWriteDeadline, t)
}

// A deadline is a channel that closes at a time that can be moved.
type deadline struct {
	mu      sync.Mutex
	expired chan struct{}
	closed  bool        // expired is closed
	timer   *time.Timer // nil when no time is set
}

func (d *deadline) init() { d.expired = make(chan struct{}) }

func (d *deadline) done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.closed {
		d.init()
		d.closed = false
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		// Not by a timer: under the race detector, one that is due from the start can crash the
		// runtime (go1.26) in a synctest bubble. net/http sets such deadlines.
		d.closed = true
		close(d.expired)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == timer { // else it fired while set was replacing it
			d.closed = true
			close(d.expired)
		}
	})
	d.timer = timer
}

// InPieces is nc, read in pieces of at most n bytes within the first 8 KiB of every 64 KiB. So a
// short transfer comes all in pieces; the rest of a payload has no seams for pieces to fall on.
func InPieces(nc net.Conn, n int) net.Conn { return &inPieces{Conn: nc, n: n} }

type inPieces struct {
	net.Conn
	n    int
	came int
}

func (c *inPieces) Read(p []byte) (int, error) {
	const every, cut = 64 << 10, 8 << 10
	if at := c.came % every; at < cut {
		p = p[:min(len(p), c.n)]
	} else {
		p = p[:min(len(p), every-at)]
	}
	n, err := c.Conn.Read(p)
	c.came += n
	return n, err
}
