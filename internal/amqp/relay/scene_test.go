// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
)

// A scene is a namespace with a relay in front of it, each on a network of its
// own.
type scene struct {
	*testing.T
	ns    *brokertest.Namespace
	front *pipenet.Network // between clients and the relay
	relay *Relay
	wrap  func(net.Conn) net.Conn // what the relay gets of a client; nil = as it is
}

const endpoint = "relay.test"

// setup starts a namespace and a relay. Both end with the test.
func setup(t *testing.T, configure func(*Config), brokers ...func(*broker.Config)) *scene {
	t.Helper()
	s := &scene{T: t, front: pipenet.New()}
	t.Cleanup(func() { s.front.Cut() })
	s.ns = brokertest.New(t, brokers...)
	cfg := Config{
		Dial:     s.ns.Dial,
		Hostname: "overdue.test",
		ErrorLog: func(err error) { t.Log(err) },
	}
	if configure != nil {
		configure(&cfg)
	}
	s.relay = New(cfg)
	ln, err := s.front.Listen(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.relay.Serve(wrapped{ln, s}) }()
	t.Cleanup(func() {
		s.front.Resume(pipenet.Both)
		if err := s.relay.Close(); err != nil {
			t.Errorf("closing the relay: %v", err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
	})
	return s
}

type wrapped struct {
	net.Listener
	s *scene
}

func (w wrapped) Accept() (net.Conn, error) {
	nc, err := w.Listener.Accept()
	if err == nil && w.s.wrap != nil {
		nc = w.s.wrap(nc)
	}
	return nc, err
}

// dial opens a connection to the relay.
func (s *scene) dial(ctx context.Context) (net.Conn, error) { return s.front.Dial(ctx, endpoint) }

func (s *scene) options() *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return s.dial(ctx)
		},
	}
}

// client returns a client of the SDK that comes through the relay.
func (s *scene) client() *azservicebus.Client {
	s.Helper()
	c, err := azservicebus.NewClientFromConnectionString(s.ns.ConnectionString(), s.options())
	s.must(err)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = c.Close(ctx) // a test may have broken the connection
	})
	return c
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("unexpected error: %v", err)
	}
}
