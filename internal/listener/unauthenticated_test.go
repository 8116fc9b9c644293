// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"overdue/internal/listener/accept"
)

// tokenScene is a listener that requires tokens, with places for four idle unauthenticated
// connections. A request is good whose path is /good.
func tokenScene(t *testing.T, open bool) (dial func() net.Conn) {
	s := New(Config{
		AMQP: func(nc net.Conn) error {
			defer nc.Close()
			accept.QuotaOf(nc).Admit()
			_, _ = io.Copy(nc, nc)
			return nil
		},
		HTTP: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/good" {
				Admit(r)
			}
		}),
		Open: open,
	})
	s.unauthenticated = accept.NewUnauthenticated(accept.Limits{Bytes: 4 * accept.ConnCost, Total: 4*accept.ConnCost + 4096})
	t.Cleanup(func() { s.Close() })
	return func() net.Conn {
		near, far := net.Pipe()
		go func() { _ = s.ServeConn(far) }()
		t.Cleanup(func() { near.Close() })
		return near
	}
}

// ask sends a request, and reports whether it is answered.
func ask(t *testing.T, nc net.Conn, path string) bool {
	t.Helper()
	if _, err := io.WriteString(nc, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return true
}

func TestUnauthenticatedConnectionsYieldToNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := tokenScene(t, false)
		good, refused, amqp := dial(), dial(), dial()
		if !ask(t, good, "/good") || !ask(t, refused, "/bad") {
			t.Fatal("a request is not answered")
		}
		echo := func() bool {
			if _, err := amqp.Write([]byte("AMQP")); err != nil {
				return false
			}
			_, err := io.ReadFull(amqp, make([]byte, 4))
			return err == nil
		}
		if !echo() {
			t.Fatal("AMQP is not served")
		}
		for range 10 {
			dial()
			synctest.Wait()
		}
		if !ask(t, good, "/good") {
			t.Error("a connection whose request was good has been cut")
		}
		if !echo() {
			t.Error("a connection of AMQP that was admitted has been cut")
		}
		if ask(t, refused, "/bad") {
			t.Error("a connection whose request was not good has its place, want it to yield")
		}
		if !ask(t, dial(), "/good") {
			t.Error("a newcomer is not served")
		}
	})
}

func TestAnOpenListenerLimitsConnectionsUntilTheirProtocolIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := tokenScene(t, true)
		all := make([]net.Conn, 20)
		for i := range all {
			if all[i] = dial(); !ask(t, all[i], "/") {
				t.Fatalf("connection %d is not served", i)
			}
		}
		for i, nc := range all {
			if !ask(t, nc, "/") {
				t.Errorf("connection %d has been cut", i)
			}
		}
	})
}

// The connection finds its place among the unauthenticated over any transport of AMQP, because the
// token comes over AMQP.
func TestAConnectionIsUnauthenticatedOverAnyTransport(t *testing.T) {
	certificate := made(t)
	asIs := func(c net.Conn) net.Conn { return c }
	overTLS := func(c net.Conn) net.Conn { return tls.Client(c, trust(t, certificate)) }
	const hello = "AMQP"
	const upgrade = "GET " + WebSocketPath + " HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
	for name, x := range map[string]struct {
		over func(net.Conn) net.Conn
		says string
	}{
		"AMQP": {asIs, hello}, "AMQP over TLS": {overTLS, hello}, "WebSocket": {asIs, upgrade}, "WebSocket over TLS": {overTLS, upgrade},
	} {
		t.Run(name, func(t *testing.T) {
			limited := make(chan bool, 1)
			s := New(Config{
				AMQP: func(nc net.Conn) error {
					limited <- accept.QuotaOf(nc).Limited()
					return nc.Close()
				},
				HTTP: http.NotFoundHandler(), TLS: certificate.TLS,
			})
			t.Cleanup(func() { s.Close() })
			near, far := tcpPipe(t)
			go func() { _ = s.ServeConn(far) }()
			c := x.over(near)
			if _, err := io.WriteString(c, x.says); err != nil {
				t.Fatal(err)
			}
			if !<-limited {
				t.Error("its connection has no limits")
			}
		})
	}
}
