// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Serve is s.Serve on ln for a handler that reads requests with ParseSend. It blocks until s
// is shut down or closed, and returns what s.Serve returns then.
//
// Served in any other way, such a handler knows the headers of a request only as net/http spells
// them. A property that is sent as orderId would arrive as Orderid, where Service Bus keeps the
// name. Serve keeps it too, over HTTP/1; for TLS, ln speaks it and offers no HTTP/2.
func Serve(s *http.Server, ln net.Listener) error {
	connContext, connState := s.ConnContext, s.ConnState
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		ctx = context.WithValue(ctx, spelledConnKey{}, spelled(c))
		if connContext != nil {
			ctx = connContext(ctx, c)
		}
		return ctx
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if sc := spelled(c); sc != nil {
			sc.follow(state)
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
	sc := &spelledConn{Conn: c, requests: splitter{maxHead: l.maxHead}}
	if secured, ok := c.(connectionStater); ok {
		return securedConn{sc, secured}, nil
	}
	return sc, nil
}

// A securedConn has what net/http takes as the sign of TLS.
type securedConn struct {
	*spelledConn
	connectionStater
}

type connectionStater interface{ ConnectionState() tls.ConnectionState }

// spelled is c as Accept has made it, nil when it has not.
func spelled(c net.Conn) *spelledConn {
	switch c := c.(type) {
	case *spelledConn:
		return c
	case securedConn:
		return c.spelledConn
	}
	return nil
}

type spelledConnKey struct{}

// A spelledConn is a connection that remembers the head of the request at hand. It hands on the
// bytes of one request at a time. So this is the request which net/http has read and is serving,
// even when the client does not wait for its answer.
type spelledConn struct {
	net.Conn

	// early is what has come of later requests. ONLY Read uses it; net/http reads from one
	// goroutine at a time. It is no longer than the buffer that net/http reads into.
	early []byte

	mu       sync.Mutex // net/http looks out for the next request while the handler runs
	requests splitter
}

// NetConn is the connection as it was accepted.
func (c *spelledConn) NetConn() net.Conn { return c.Conn }

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

// follow keeps the parts of requests that the state of the connection needs. It keeps nothing of
// requests that are done with. It keeps nothing more when somebody else has taken the connection
// over, who does not speak HTTP on it.
func (c *spelledConn) follow(state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateIdle:
		c.requests.forget()
	case http.StateHijacked:
		c.requests.lose()
	}
}

// KeepSpelling gives the properties that r carries in its headers the names that the sender has
// given them. A header that is repeated has the name beside the first of its values. Names stay as
// they are if r did not come through Serve, or is framed in a way that leaves a doubt. They also
// stay if fixed, which may be nil, says that they have one spelling only.
func KeepSpelling(r *http.Request, properties map[string]any, fixed func(property string) bool) {
	c, _ := r.Context().Value(spelledConnKey{}).(*spelledConn)
	if c == nil || len(properties) == 0 {
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
		if !ok || fixed != nil && fixed(known) || r.Header.Get(header) != string(value) {
			continue
		}
		delete(properties, known)
		properties[string(name)] = v
	}
}
