// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/racetest"
)

var expiries = map[string]queue.Expiry{"lazy": queue.Lazy, "lazy-head": queue.LazyHead, "eager": queue.Eager}

// endpoint is an HTTP client that reaches the embedded broker.
func endpoint(t *testing.T, b *broker.Broker) func(*http.Request) (*http.Response, error) {
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
	return (&http.Client{Transport: transport}).Do
}

func TestEmbeddedBrokerOnFakeTime(t *testing.T) {
	for name, expiry := range expiries {
		if racetest.Enabled && expiry != queue.Eager {
			continue // it changes when messages expire, not what goroutines share
		}
		t.Run(name, func(t *testing.T) {
			Run(t, synctest.Test, func(t *testing.T) *Target {
				secured := expiry == queue.Eager // once in fake time
				ns := brokertest.New(t, func(c *broker.Config) {
					if c.AutoCreate, c.Expiry = false, expiry; secured {
						c.Keys = []broker.AuthorizationRule{brokertest.Key()}
					}
				})
				target := Embedded(ns)
				target.HTTP, target.Secured, target.Expiry = endpoint(t, ns.Broker), secured, expiry
				return target
			})
		})
	}
}
