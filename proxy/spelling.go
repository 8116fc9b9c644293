// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync"
)

// Serve is the REST door on ln, with the bounds and timeouts of s. It blocks until s is
// shut down or closed, and returns what s.Serve returns then. A nil s.Handler means p; a
// handler around p may add what it likes.
//
// Served in any other way, p knows the headers of a request only as net/http spells them:
// what is sent as orderId would arrive as Orderid, where Service Bus keeps the name. Serve
// keeps it too, over HTTP/1; for TLS, ln speaks it and offers no HTTP/2.
func (p *Proxy) Serve(s *http.Server, ln net.Listener) error {
	if s.Handler == nil {
		s.Handler = p
	}
	connContext, connState := s.ConnContext, s.ConnState
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		ctx = context.WithValue(ctx, spelledConnKey{}, c)
		if connContext != nil {
			ctx = connContext(ctx, c)
		}
		return ctx
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if sc, ok := c.(*spelledConn); ok && state == http.StateIdle {
			sc.forget()
		}
		if connState != nil {
			connState(c, state)
		}
	}
	maxHead := s.MaxHeaderBytes
	if maxHead <= 0 {
		maxHead = http.DefaultMaxHeaderBytes
	}
	return s.Serve(&spelledListener{ln, maxHead + headSlop})
}

// headSlop is how much more than MaxHeaderBytes net/http reads of a head.
const headSlop = 4096

type spelledListener struct {
	net.Listener
	maxHead int
}

func (l *spelledListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &spelledConn{Conn: c, requests: splitter{maxHead: l.maxHead}}, nil
}

type spelledConnKey struct{}

// A spelledConn is a connection that remembers the head of the request at hand. It hands
// on the bytes of one request at a time, so that this is the request which net/http has
// read and is serving, even when the client does not wait for its answer.
type spelledConn struct {
	net.Conn

	// early is what has come of later requests. ONLY Read uses it; net/http reads from one
	// goroutine at a time. It is no longer than the buffer that net/http reads into.
	early []byte

	mu       sync.Mutex // net/http looks out for the next request while the handler runs
	requests splitter
}

func (c *spelledConn) Read(b []byte) (n int, err error) {
	if len(c.early) > 0 {
		n = copy(b, c.early)
	} else {
		n, err = c.Conn.Read(b)
	}
	c.mu.Lock()
	k := c.requests.follow(b[:n])
	c.mu.Unlock()
	switch {
	case len(c.early) > k:
		c.early = c.early[k:]
	case len(c.early) > 0:
		c.early = nil // a client that pipelines once need not do so again
	case k < n:
		c.early = bytes.Clone(b[k:n])
		err = nil // it comes again when these bytes have been read
	}
	return k, err
}

func (c *spelledConn) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests.forget()
}

// keepSpelling gives the properties that r carries in its headers the names that the
// sender has given them; a header that is repeated has a name that stands beside the first
// of its values. Names stay as they are where r did not come through Serve, or is framed in
// a way that leaves a doubt.
func keepSpelling(r *http.Request, properties map[string]any) {
	c, ok := r.Context().Value(spelledConnKey{}).(*spelledConn)
	if !ok || len(properties) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, fields, _ := bytes.Cut(c.requests.head, lineFeed)
	for line := range bytes.Lines(fields) {
		name, value, _ := field(line)
		header := http.CanonicalHeaderKey(string(name))
		known := propertyName(header)
		v, ok := properties[known]
		// The value is compared for certainty: a name counts only beside what it names.
		if !ok || isOurs(known) || r.Header.Get(header) != string(value) {
			continue
		}
		delete(properties, known)
		properties[string(name)] = v
	}
}
