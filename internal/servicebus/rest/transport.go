// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxReplyHead bounds the head of an answer: 64 KiB of properties, and as much for the rest.
	maxReplyHead = 128 << 10
	// idleReply is how long a connection is kept that nobody uses. Service Bus ends it after two
	// minutes.
	idleReply = 90 * time.Second
	// maxIdleReplies bounds such connections.
	maxIdleReplies = 64
)

// A Transport exchanges requests and answers with one server over HTTP/1, and keeps the names of
// headers as they are written, both ways. Custom properties are headers, and http.Transport would
// give those of an answer its own spelling. It is an http.RoundTripper.
type Transport struct{ http *http.Transport }

// NewTransport makes a Transport whose connections dial opens, TLS included. The URLs of its
// requests are of the scheme http.
func NewTransport(dial func(context.Context) (net.Conn, error)) *Transport {
	return &Transport{&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return &replyConn{Conn: c}, nil
		},
		DisableCompression:     true, // the client that asked for an encoding decodes it
		MaxResponseHeaderBytes: maxReplyHead,
		MaxIdleConnsPerHost:    maxIdleReplies,
		IdleConnTimeout:        idleReply,
	}}
}

// RoundTrip is that of http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var at atomic.Pointer[replyConn]
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if c, ok := info.Conn.(*replyConn); ok {
			c.begin()
			at.Store(c)
		}
	}})
	resp, err := t.http.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if c := at.Load(); c != nil {
		if h, ok := spelledHeader(c.reply(), resp.Header); ok {
			resp.Header = h
		}
	}
	return resp, nil
}

// CloseIdleConnections closes the connections that no exchange uses.
func (t *Transport) CloseIdleConnections() { t.http.CloseIdleConnections() }

// A replyConn keeps the head of the answer to the request at hand. http.Transport has one at a
// time on a connection.
type replyConn struct {
	net.Conn

	mu    sync.Mutex // http.Transport reads and writes from goroutines of its own
	head  []byte
	whole bool // head is complete, or too long to be kept
}

// begin forgets the answer to the request before.
func (c *replyConn) begin() {
	c.mu.Lock()
	c.head, c.whole = nil, false
	c.mu.Unlock()
}

// reply is the head of the answer, nil when it is not known.
func (c *replyConn) reply() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.whole {
		return nil
	}
	return c.head
}

func (c *replyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	if !c.whole {
		c.follow(b[:n])
	}
	c.mu.Unlock()
	return n, err
}

// follow takes the next bytes of the answer. Heads of interim answers (RFC 9110, section 15.2) are
// passed over.
func (c *replyConn) follow(b []byte) {
	c.head = append(c.head, b...)
	for {
		end := headEnd(c.head)
		switch {
		case end < 0 && len(c.head) > maxReplyHead:
			c.head, c.whole = nil, true
			return
		case end < 0:
			return
		case isInterim(c.head):
			c.head = c.head[end:]
			continue
		}
		c.head, c.whole = bytes.Clone(c.head[:end]), true
		return
	}
}

// headEnd is where the empty line behind a head ends, -1 when it has not come.
func headEnd(b []byte) int {
	for at := 0; at < len(b); {
		end := bytes.IndexByte(b[at:], '\n') + 1
		if end == 0 {
			return -1
		}
		if at > 0 && isBreak(b[at:at+end]) {
			return at + end
		}
		at += end
	}
	return -1
}

// isInterim reports whether a head is that of an answer behind which another one comes.
func isInterim(head []byte) bool {
	_, status, ok := bytes.Cut(head[:min(len(head), 64)], []byte(" "))
	return ok && len(status) > 2 && status[0] == '1' && !bytes.HasPrefix(status, []byte("101"))
}
