// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

// A client that came over TLS is led back over TLS.
func TestALocationLeadsBackTheWayTheClientCame(t *testing.T) {
	p := &Proxy{cfg: Config{Upstream: Upstream{Host: namespaceName}}}
	const path = "/orders/messages/1/token?x=%20y"
	for _, tt := range []struct {
		tls            *tls.ConnectionState
		location, want string
	}{
		{nil, "https://" + namespaceName + path, "http://endpoint:8080" + path},
		{&tls.ConnectionState{}, "https://" + namespaceName + path, "https://endpoint:8080" + path},
		{&tls.ConnectionState{}, "https://" + namespaceName + ":443" + path, "https://endpoint:8080" + path},
		{&tls.ConnectionState{}, "https://elsewhere.test" + path, "https://elsewhere.test" + path},
		{&tls.ConnectionState{}, path, path},
	} {
		if got := p.ownLocation(&http.Request{Host: "endpoint:8080", TLS: tt.tls}, tt.location); got != tt.want {
			t.Errorf("%s over TLS %v is %s, want %s", tt.location, tt.tls != nil, got, tt.want)
		}
	}
}

// An answer without a type goes on without one: nothing is guessed.
func TestAnAnswerWithoutATypeStaysWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t, upstreamSays(func(nc net.Conn, _ string) {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>")
		}))
		a := sc.ask(sc.browser(), "GET", "/orders", "")
		sc.wantAnswer("a relayed request", a, http.StatusOK, "<html></html>")
		if got, ok := a.header["Content-Type"]; ok {
			t.Errorf("it is of type %q, want none", got)
		}
	})
}
