// SPDX-License-Identifier: Apache-2.0

// Package httpapitest serves the embedded broker, with its HTTP, to a test.
package httpapitest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
)

// Transport reaches the HTTP of b over pipes, whatever the address of a request, until the test ends.
// It works in a bubble of synctest.
func Transport(t testing.TB, b *broker.Broker) *http.Transport {
	t.Helper()
	server := httpapi.New(httpapi.Config{Broker: b, ErrorLog: func(err error) { t.Log(err) }})
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		theirs, ours := net.Pipe()
		go func() { _ = server.ServeConn(ours) }() // it ends with the client's connection
		return theirs, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Errorf("closing the endpoint: %v", err)
		}
	})
	return transport
}

// Serve serves b as `overdue broker` does, until the test ends.
func Serve(t testing.TB, b *broker.Broker, ln net.Listener) {
	server := httpapi.New(httpapi.Config{Broker: b})
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		for _, err := range []error{server.Close(), b.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
		if err := <-done; !errors.Is(err, httpapi.ErrServerClosed) {
			t.Errorf("Serve = %v, want ErrServerClosed", err)
		}
	})
}
