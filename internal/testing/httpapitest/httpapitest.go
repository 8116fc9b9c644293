// SPDX-License-Identifier: Apache-2.0

// Package httpapitest serves the embedded broker, with its HTTP, on a listener of a test.
package httpapitest

import (
	"errors"
	"net"
	"testing"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
)

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
