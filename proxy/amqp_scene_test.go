// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/testing/pipenet"
)

// endpointName is where the AMQP endpoint listens on the network before it.
const endpointName = "overdue.test"

// An amqpScene is a scene whose apps come through the AMQP endpoint.
type amqpScene struct {
	*scene
	front  *pipenet.Network // between apps and the proxy
	app    *azservicebus.Client
	pieces int // in which bytes come to the proxy, from apps and from the broker; 0 = as they are
}

// A piecemeal listener has connections whose bytes come in pieces.
type piecemeal struct {
	net.Listener
	sc *amqpScene
}

func (l piecemeal) Accept() (net.Conn, error) { return l.sc.inPieces(l.Listener.Accept()) }

func (sc *amqpScene) inPieces(nc net.Conn, err error) (net.Conn, error) {
	if err == nil && sc.pieces > 0 {
		nc = pipenet.InPieces(nc, sc.pieces)
	}
	return nc, err
}

// setupAMQP starts a scene with an app at the AMQP endpoint.
func setupAMQP(t *testing.T, change ...func(*setting)) *amqpScene {
	t.Helper()
	sc := &amqpScene{front: pipenet.New()}
	t.Cleanup(func() { sc.front.Cut() })
	var dial func(context.Context) (net.Conn, error)
	sc.scene = setup(t, append(change, func(s *setting) {
		s.proxy.MonitorQueue = monitorQueue
		s.proxy.AMQP.Dial = func(ctx context.Context) (net.Conn, error) { return dial(ctx) }
		s.proxy.AMQP.Hostname = "namespace.test"
	})...)
	dial = func(ctx context.Context) (net.Conn, error) { return sc.inPieces(sc.ns.Dial(ctx)) }
	ln, err := sc.front.Listen(endpointName)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- sc.proxy.Serve(piecemeal{ln, sc}) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sc.proxy.Close(ctx); err != nil {
			t.Errorf("closing the proxy: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
	sc.app = sc.client()
	return sc
}

// dial opens a connection to the AMQP endpoint.
func (sc *amqpScene) dial(ctx context.Context) (net.Conn, error) {
	return sc.front.Dial(ctx, endpointName)
}

// client is an app's, whose only difference from any other is where it connects to.
func (sc *amqpScene) client() *azservicebus.Client { return sc.clientOf(sc.ns.ConnectionString()) }

// clientOf is that of an app that has been given a connection string of its own.
func (sc *amqpScene) clientOf(connectionString string) *azservicebus.Client {
	sc.Helper()
	c, err := azservicebus.NewClientFromConnectionString(connectionString, &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return sc.dial(ctx) },
		RetryOptions:     azservicebus.RetryOptions{RetryDelay: time.Second, MaxRetryDelay: time.Second},
	})
	if err != nil {
		sc.Fatal(err)
	}
	sc.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = c.Close(ctx) // the test may have broken its connection
	})
	return c
}

// sender is one of the app's.
func (sc *amqpScene) sender(entity string) *azservicebus.Sender {
	sc.Helper()
	s, err := sc.app.NewSender(entity, nil)
	if err != nil {
		sc.Fatal(err)
	}
	return s
}

// session is one of go-amqp, for what the SDK hides.
func (sc *amqpScene) session() *goamqp.Session { return sc.sessionOf(0) }

// sessionOf is one that takes frames of at most that many bytes; 0 = go-amqp's default.
func (sc *amqpScene) sessionOf(frame uint32) *goamqp.Session {
	sc.Helper()
	nc, err := sc.dial(sc.Context())
	if err != nil {
		sc.Fatal(err)
	}
	conn, err := goamqp.NewConn(sc.Context(), nc, &goamqp.ConnOptions{HostName: endpointName, SASLType: goamqp.SASLTypeAnonymous(), MaxFrameSize: frame})
	if err != nil {
		sc.Fatal(err)
	}
	sc.Cleanup(func() { _ = conn.Close() }) // tells what the peer made of it, see go-amqp
	session, err := conn.NewSession(sc.Context(), nil)
	if err != nil {
		sc.Fatal(err)
	}
	return session
}

func (sc *amqpScene) must(err error) {
	sc.Helper()
	if err != nil {
		sc.Fatalf("unexpected error: %v", err)
	}
}
