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

// A feed is the listener of the HTTP server. It accepts connections that were recognised as
// HTTP.
type feed struct {
	conns  chan *httpConn
	closed chan struct{}
	once   sync.Once
}

func newFeed() *feed {
	return &feed{conns: make(chan *httpConn), closed: make(chan struct{})}
}

// serve passes c to the HTTP server and waits until c is closed, by that server or by the
// handler that took it over.
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
func (feedAddr) String() string  { return "listener" }

// An httpConn bounds the time of each write and reports its end. The WriteTimeout of
// http.Server would bound the whole response, and so the time that a request may wait
// for a message.
type httpConn struct {
	net.Conn
	tls   *tls.Conn // nil without
	quota *accept.Quota
	heard int // bytes charged to quota; only the reading goroutine uses it
	done  chan struct{}
	once  sync.Once
}

func newHTTPConn(c net.Conn) *httpConn {
	hc := &httpConn{Conn: c, quota: accept.QuotaOf(c), done: make(chan struct{})}
	if s, ok := c.(secured); ok {
		hc.tls = s.tls
	}
	return hc
}

// Quota returns the quota of the connection.
func (c *httpConn) Quota() *accept.Quota { return c.quota }

// Read charges at most one request head to the quota: net/http buffers one at a time, and handlers
// check the token before they read the body.
func (c *httpConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if more := min(n, maxHead-c.heard); more > 0 && c.quota.Limited() {
		c.heard += more
		if err := c.quota.Spend(more); err != nil {
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

// securedHTTPConn is an httpConn within TLS, which net/http shows to handlers.
type securedHTTPConn struct{ *httpConn }

func (c securedHTTPConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

type quotaKey struct{}

// withQuota lets Admit find the connection of a request.
func withQuota(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, quotaKey{}, accept.QuotaOf(c))
}

// Admit lifts the limits of the connection of r: r has shown a valid token, or needs none. It
// ignores requests that did not come through a Server.
func Admit(r *http.Request) { quotaOf(r).Admit() }

// quotaOf returns the quota of the connection of r, or nil.
func quotaOf(r *http.Request) *accept.Quota {
	g, _ := r.Context().Value(quotaKey{}).(*accept.Quota)
	return g
}

// lineLogger passes the log lines of net/http to f.
func lineLogger(f func(error)) *log.Logger { return log.New(lines(f), "", 0) }

type lines func(error)

func (f lines) Write(b []byte) (int, error) {
	f(errors.New("listener: " + strings.TrimSpace(string(b))))
	return len(b), nil
}
