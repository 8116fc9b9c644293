// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"

	"overdue/internal/broker"
	"overdue/internal/listener"
	"overdue/internal/testing/pipenet"
)

const host = "localhost:5672"

// A scene is a server on a network in memory, or on the loopback interface.
type scene struct {
	t      *testing.T
	net    *pipenet.Network // nil on loopback
	addr   string           // on loopback
	broker *broker.Broker
	server *Server
	errs   chan error // what the server has logged
}

func setup(t *testing.T, change ...func(*Config)) *scene {
	t.Helper()
	return setupBroker(t, broker.Config{AutoCreate: true}, change...)
}

func setupBroker(t *testing.T, bc broker.Config, change ...func(*Config)) *scene {
	t.Helper()
	b, err := broker.New(bc)
	if err != nil {
		t.Fatal(err)
	}
	network := pipenet.New()
	t.Cleanup(func() { network.Cut() })
	ln, err := network.Listen(host)
	if err != nil {
		t.Fatal(err)
	}
	sc := start(t, b, ln, change)
	sc.net = network
	return sc
}

// setupTCP is setupBroker on the loopback interface, for TLS. When both sides close at once, TLS
// waits for room in the network under a mutex, which stops the time of a bubble.
func setupTCP(t *testing.T, bc broker.Config, change ...func(*Config)) *scene {
	t.Helper()
	b, err := broker.New(bc)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sc := start(t, b, ln, change)
	sc.addr = ln.Addr().String()
	return sc
}

func start(t *testing.T, b *broker.Broker, ln net.Listener, change []func(*Config)) *scene {
	sc := &scene{t: t, broker: b, errs: make(chan error, 100)}
	cfg := Config{Broker: b, Version: "v1.2.3", ErrorLog: func(err error) { sc.errs <- err }}
	for _, f := range change {
		f(&cfg)
	}
	sc.server = New(cfg)
	done := make(chan error, 1)
	go func() { done <- sc.server.Serve(ln) }()
	t.Cleanup(func() {
		if err := sc.server.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("closing the broker: %v", err)
		}
		if err := <-done; !errors.Is(err, ErrServerClosed) {
			t.Errorf("Serve = %v, want ErrServerClosed", err)
		}
	})
	return sc
}

// plain opens a connection without a word on it.
func (sc *scene) plain(ctx context.Context) (net.Conn, error) {
	if sc.net != nil {
		return sc.net.Dial(ctx, host)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", sc.addr)
}

// dial is plain for a test that cannot do without.
func (sc *scene) dial() net.Conn {
	sc.t.Helper()
	c, err := sc.plain(sc.t.Context())
	if err != nil {
		sc.t.Fatal(err)
	}
	sc.t.Cleanup(func() { c.Close() })
	return c
}

// http returns a client that reaches the server under any name.
func (sc *scene) http(config *tls.Config) *http.Client {
	transport := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return sc.plain(ctx) },
		TLSClientConfig: config,
	}
	sc.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// a dialer opens a connection on which AMQP can begin.
type dialer func(context.Context) (net.Conn, error)

func (sc *scene) overTLS(config *tls.Config) dialer {
	return func(ctx context.Context) (net.Conn, error) {
		c, err := sc.plain(ctx)
		if err != nil {
			return nil, err
		}
		return tls.Client(c, config), nil
	}
}

func (sc *scene) overWebSocket(scheme, subprotocol string, config *tls.Config) dialer {
	return func(ctx context.Context) (net.Conn, error) {
		ws, _, err := websocket.Dial(ctx, scheme+"://"+host+"/$servicebus/websocket", &websocket.DialOptions{
			HTTPClient: sc.http(config), Subprotocols: []string{subprotocol},
		})
		if err != nil {
			return nil, err
		}
		return hasty{websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws}, nil
	}
}

// hasty closes without goodbyes: both sides would say theirs at once, and a pipe
// has no buffer for one of them.
type hasty struct {
	net.Conn
	ws *websocket.Conn
}

func (c hasty) Close() error { return c.ws.CloseNow() }

const connectionString = "Endpoint=sb://" + host + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"

// client is the SDK, through d.
func (sc *scene) client(connectionString string, d dialer) *azservicebus.Client {
	sc.t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(connectionString, &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return d(ctx) },
		RetryOptions:     azservicebus.RetryOptions{MaxRetries: -1},
	})
	if err != nil {
		sc.t.Fatal(err)
	}
	sc.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = client.Close(ctx) // what the test has cut cannot be closed in order
	})
	return client
}

// trust is the configuration of a client that trusts c and nothing else.
func trust(t *testing.T, c *listener.Certificate) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatalf("%s has no certificate", c.CAFile)
	}
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

func selfMade(t *testing.T) *listener.Certificate {
	t.Helper()
	c, err := listener.SelfMade(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantLog waits for what the server logs next.
func (sc *scene) wantLog(want error) {
	sc.t.Helper()
	select {
	case err := <-sc.errs:
		if !errors.Is(err, want) {
			sc.t.Errorf("logged %v, want %v", err, want)
		}
	case <-time.After(time.Minute):
		sc.t.Errorf("nothing was logged, want %v", want)
	}
}
