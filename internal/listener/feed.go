// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"overdue/internal/listener/accept"
)

// A feed is the listener of the HTTP server: what it accepts are connections
// that have been recognised.
type feed struct {
	conns  chan *httpConn
	closed chan struct{}
	once   sync.Once
}

func newFeed() *feed {
	return &feed{conns: make(chan *httpConn), closed: make(chan struct{})}
}

// serve hands c to the HTTP server and waits until it is closed, by whoever it
// belongs to in the end.
func (f *feed) serve(c net.Conn) error {
	hc := newHTTPConn(c)
	select {
	case f.conns <- hc:
		<-hc.done
		return nil
	case <-f.closed:
		return ErrClosed
	}
}

func (f *feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		if c.tls != nil {
			return securedHTTPConn{c}, nil
		}
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *feed) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

func (f *feed) Addr() net.Addr { return feedAddr{} }

type feedAddr struct{}

func (feedAddr) Network() string { return "tcp" }
func (feedAddr) String() string  { return "door" }

// An httpConn bounds how long a write may take, and tells when it is closed.
// A timeout of the server's would bound the whole answer, and so the time that a
// request may wait for a message.
type httpConn struct {
	net.Conn
	tls   *tls.Conn // nil without
	guest *accept.Guest
	heard int // bytes that were reckoned for a stranger; of the goroutine that reads
	done  chan struct{}
	once  sync.Once
}

func newHTTPConn(c net.Conn) *httpConn {
	hc := &httpConn{Conn: c, guest: accept.GuestOf(c), done: make(chan struct{})}
	if s, ok := c.(secured); ok {
		hc.tls = s.tls
	}
	return hc
}

// Guest is its place among the strangers.
func (c *httpConn) Guest() *accept.Guest { return c.guest }

// Read reckons for a stranger as much as the head of a request may have: net/http keeps one at a time, and a body is not
// read before its token.
func (c *httpConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if more := min(n, maxHead-c.heard); more > 0 && c.guest.Stranger() {
		c.heard += more
		if err := c.guest.Spend(more); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (c *httpConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *httpConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.done) })
	return err
}

// securedHTTPConn is one whose handlers may know that it is.
type securedHTTPConn struct{ *httpConn }

func (c securedHTTPConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

type guestKey struct{}

// withGuest lets Admit find the connection of a request.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, guestKey{}, accept.GuestOf(c))
}

// Admit says that r has shown a good token, or that it needs none: its connection is no stranger any more. A request that came
// in another way is let be.
func Admit(r *http.Request) { guestOf(r).Admit() }

// guestOf is the guest of the connection that r came over, nil if there is none.
func guestOf(r *http.Request) *accept.Guest {
	g, _ := r.Context().Value(guestKey{}).(*accept.Guest)
	return g
}

// lineLogger gives f what net/http has to say about connections.
func lineLogger(f func(error)) *log.Logger { return log.New(lines(f), "", 0) }

type lines func(error)

func (f lines) Write(b []byte) (int, error) {
	f(errors.New("door: " + strings.TrimSpace(string(b))))
	return len(b), nil
}
