// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
)

// namespaceName is what the namespace calls itself over HTTP.
const namespaceName = "namespace.test"

// setupREST starts a scene whose namespace speaks HTTP, too, behind both endpoints.
func setupREST(t *testing.T, change ...func(*setting)) *amqpScene {
	t.Helper()
	var dial func(context.Context) (net.Conn, error)
	sc := setupAMQP(t, append([]func(*setting){func(s *setting) {
		s.proxy.Upstream = Upstream{Dial: func(ctx context.Context) (net.Conn, error) { return dial(ctx) }, Host: namespaceName}
	}}, change...)...)
	ln, err := sc.ns.Net.Listen(namespaceName)
	if err != nil {
		t.Fatal(err)
	}
	server := httpapi.New(httpapi.Config{Broker: sc.ns.Broker, ErrorLog: func(err error) { sc.Log(err) }})
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("closing the namespace's HTTP: %v", err)
		}
		if err := <-done; !errors.Is(err, httpapi.ErrServerClosed) {
			t.Errorf("Serve = %v, want ErrServerClosed", err)
		}
	})
	dial = func(ctx context.Context) (net.Conn, error) { return sc.ns.Net.Dial(ctx, namespaceName) }
	return sc
}

// browser is a client of the REST endpoint.
func (sc *amqpScene) browser() *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return sc.dial(ctx) }}
	sc.Cleanup(func() {
		transport.CloseIdleConnections()
		time.Sleep(time.Second) // net/http lingers for 500 ms over a connection that it closes
	})
	return &http.Client{Transport: transport}
}

// A restAnswer is what the REST endpoint has answered.
type restAnswer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request with headers, given as pairs, to the REST endpoint.
func (sc *amqpScene) ask(c *http.Client, method, url, body string, headers ...string) restAnswer {
	sc.Helper()
	if strings.HasPrefix(url, "/") {
		url = "http://" + endpointName + url
	}
	r, err := http.NewRequestWithContext(sc.Context(), method, url, strings.NewReader(body))
	if err != nil {
		sc.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = []string{headers[i+1]}
	}
	resp, err := c.Do(r)
	if err != nil {
		sc.Fatalf("%s %s: %v", method, url, err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		sc.Fatalf("%s %s: %v", method, url, err)
	}
	if err := resp.Body.Close(); err != nil {
		sc.Error(err)
	}
	return restAnswer{resp.StatusCode, resp.Header, string(text)}
}

// wantAnswer fails the test unless the answer has the status and its body says something.
func (sc *amqpScene) wantAnswer(what string, a restAnswer, status int, say string) {
	sc.Helper()
	if a.status != status || !strings.Contains(a.body, say) {
		sc.Fatalf("%s = %d %s, want %d with %q", what, a.status, a.body, status, say)
	}
}

// secured makes a namespace that wants tokens of a key, which the proxy has and clients need not.
func secured(authorize func(ctx context.Context, address string) (string, error)) func(*setting) {
	return func(s *setting) {
		s.broker.Keys = []broker.AuthorizationRule{upstreamKey}
		s.proxy.Upstream.Authorize = authorize
	}
}

var upstreamKey = broker.AuthorizationRule{KeyName: "RootManageSharedAccessKey", PrimaryKey: "c2VjcmV0", Manage: true}
