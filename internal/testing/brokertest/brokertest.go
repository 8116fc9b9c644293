// SPDX-License-Identifier: Apache-2.0

// Package brokertest gives tests a Service Bus namespace of their own.
//
// [New] starts an embedded broker on a network in memory; the real azservicebus
// client talks to it. It works inside a synctest bubble, where an hour of locks
// and deadlines passes at once, and outside of one.
//
// Two habits of the SDK show in a bubble. The first use of a Sender or Receiver
// must be alone: callers that find no link open one each, and all but one leak
// with their goroutines. And after a receive that got fewer messages than it
// asked for, the rest of its credit stays out and takes what comes, to release
// it again.
package brokertest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp/server"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/pipenet"
)

// Host is the name of every namespace that New makes.
const Host = "overdue.test"

// A Namespace is an embedded broker on a network of its own.
type Namespace struct {
	Broker *broker.Broker
	Net    *pipenet.Network // its faults hit every connection to the broker; nil over TCP

	endpoint string // as in a connection string
	dial     func(context.Context) (net.Conn, error)
}

// New starts a broker for a test and stops it when the test ends. Unless
// configure says otherwise queues come into being when they are first used.
// Inside a synctest bubble t has to be the bubble's.
func New(t testing.TB, configure ...func(*broker.Config)) *Namespace {
	t.Helper()
	network := pipenet.New()
	ln, err := network.Listen(Host)
	if err != nil {
		t.Fatalf("brokertest: %v", err)
	}
	// The last thing to happen: bytes under a delay wait for time to pass, which
	// it no longer does when the test function of a bubble has returned.
	t.Cleanup(func() { network.Cut() })
	ns := start(t, ln, configure)
	ns.Net, ns.endpoint = network, Host
	ns.dial = func(ctx context.Context) (net.Conn, error) { return network.Dial(ctx, Host) }
	// A direction that a test has stalled must not hold up the end of it.
	t.Cleanup(func() { network.Resume(pipenet.Both) })
	return ns
}

// NewTCP is New on a port of the loopback interface. It does not work in a
// bubble.
func NewTCP(t testing.TB, configure ...func(*broker.Config)) *Namespace {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("brokertest: %v", err)
	}
	ns := start(t, ln, configure)
	ns.endpoint = ln.Addr().String()
	ns.dial = func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", ns.endpoint)
	}
	return ns
}

func start(t testing.TB, ln net.Listener, configure []func(*broker.Config)) *Namespace {
	t.Helper()
	cfg := broker.Config{AutoCreate: true}
	for _, f := range configure {
		f(&cfg)
	}
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatalf("brokertest: %v", err)
	}
	serve(t, b, ln)
	return &Namespace{Broker: b}
}

// serve runs b on ln until the test ends.
func serve(t testing.TB, b *broker.Broker, ln net.Listener) {
	done := make(chan error, 1)
	go func() { done <- b.Serve(ln) }()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("brokertest: closing the broker: %v", err)
		}
		if err := <-done; !errors.Is(err, server.ErrServerClosed) {
			t.Errorf("brokertest: Serve = %v, want ErrServerClosed", err)
		}
	})
}

// Key is the key of ConnectionString, with all rights: for Config.Keys of a
// namespace that asks for tokens.
func Key() broker.AuthorizationRule {
	return broker.AuthorizationRule{KeyName: "RootManageSharedAccessKey", PrimaryKey: "c2VjcmV0", Manage: true}
}

// ConnectionString is what an application would be given.
func (ns *Namespace) ConnectionString() string {
	return "Endpoint=sb://" + ns.endpoint +
		";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
}

// Dial opens a connection to the broker, without a word of AMQP on it.
func (ns *Namespace) Dial(ctx context.Context) (net.Conn, error) { return ns.dial(ctx) }

// ClientOptions lead a client to the broker. They may be changed.
func (ns *Namespace) ClientOptions() *azservicebus.ClientOptions {
	if ns.Net == nil {
		return &azservicebus.ClientOptions{} // the connection string leads there
	}
	return &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return ns.Dial(ctx)
		},
	}
}

// Client returns a client on a connection of its own, which is closed when the
// test ends.
func (ns *Namespace) Client(t testing.TB) *azservicebus.Client {
	t.Helper()
	return NewClient(t, ns.ConnectionString(), ns.ClientOptions())
}

// Links leads to the broker without the SDK. They are closed when the test ends.
func (ns *Namespace) Links(t testing.TB) *link.Namespace {
	t.Helper()
	key := Key()
	return ns.LinksWith(t, link.SAS(key.KeyName, key.PrimaryKey))
}

// LinksWith is Links with other tokens than those of Key.
func (ns *Namespace) LinksWith(t testing.TB, tokens link.TokenSource) *link.Namespace {
	t.Helper()
	links := link.New(link.Config{Host: Host, Plain: true, Dial: ns.Dial, Tokens: tokens})
	t.Cleanup(func() { _ = links.Close() }) // a test may have broken the connection
	return links
}

// NewClient connects the SDK, and closes it at the end of the test.
func NewClient(t testing.TB, connectionString string, options *azservicebus.ClientOptions) *azservicebus.Client {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(connectionString, options)
	if err != nil {
		t.Fatalf("brokertest: %v", err)
	}
	t.Cleanup(func() { closeClient(client.Close) })
	return client
}

func closeClient(shut func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = shut(ctx) // a connection that the test has broken cannot be closed in order
}

// Seen is the messages of a peek that has to succeed.
func Seen(views []queue.View, err error) []queue.View {
	if err != nil {
		panic(err)
	}
	return views
}
