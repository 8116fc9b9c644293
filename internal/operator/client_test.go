// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"net"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/operator/dlq"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/entities"
	"overdue/internal/testing/httpapitest"
	"overdue/internal/testing/redistest"
)

// serve serves a namespace with the queues overdue-monitor and orders and the topic events, as
// `overdue broker` does, and returns its address. The clients are those of a real configuration, so
// the network is real as well.
func serve(t *testing.T) string {
	t.Helper()
	b, err := broker.New(broker.Config{
		Queues: []broker.QueueConfig{{Name: "overdue-monitor"}, {Name: "orders"}},
		Topics: []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	httpapitest.Serve(t, b, ln)
	return ln.Addr().String()
}

// open opens a client with the settings of a configuration.
func open(t *testing.T, flags map[string]string) *Client {
	t.Helper()
	c, err := config.Load("", func(string) string { return "" }, flags)
	if err != nil {
		t.Fatal(err)
	}
	client, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(t.Context()) })
	return client
}

func namespaceAt(addr string) string {
	return config.ConnectionString(addr, config.AnyKeyName, config.AnyKey)
}

func TestAClientReadsAndChangesANamespace(t *testing.T) {
	addr := serve(t)
	c := open(t, map[string]string{"namespace": namespaceAt(addr)})
	if c.Fleet != addr || c.Namespace.Host != addr {
		t.Errorf("fleet %s, namespace %s; want %s", c.Fleet, c.Namespace.Host, addr)
	}
	info, err := c.Read(t.Context(), "orders")
	if err != nil || info.Kind != entities.Queue {
		t.Errorf("Read = %+v, %v; want a queue", info, err)
	}
	admin, err := c.Administration()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateQueue(t.Context(), "bills", nil); err != nil {
		t.Fatal(err)
	}
	if err := dlq.Walk(t.Context(), c.Links, dlq.Place{Entity: "bills"}, 0, func(*dlq.Letter) bool { return true }); err != nil {
		t.Errorf("Walk of the new queue = %v", err)
	}
	sender, err := c.SDK.NewSender("bills", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sender.NewMessageBatch(t.Context(), nil); err != nil {
		t.Errorf("the SDK cannot send to the new queue: %v", err)
	}
}

func TestOnlyATopicIsATopic(t *testing.T) {
	c := open(t, map[string]string{"namespace": namespaceAt(serve(t))})
	for place, want := range map[dlq.Place]bool{
		{Entity: "events"}: true, {Entity: "events", Subscription: "audit"}: false, {Entity: "orders"}: false, {Entity: "none"}: false,
	} {
		if got := c.IsTopic(t.Context(), place); got != want {
			t.Errorf("IsTopic of %s = %v, want %v", place, got, want)
		}
	}
}

// An emulator has its API at a port that may be one of ours.
func TestOurOwnEndpointIsNotTakenForTheAdministrationAPI(t *testing.T) {
	namespace := namespaceAt("127.0.0.1")
	c := open(t, map[string]string{"namespace": namespace, "listen.http": "127.0.0.1:5300"})
	if _, err := c.Administration(); !errors.Is(err, errNoAdmin) {
		t.Errorf("Administration = %v, want %v", err, errNoAdmin)
	}
	if _, err := c.Read(t.Context(), "orders"); !errors.Is(err, errNoAdmin) {
		t.Errorf("Read = %v, want %v", err, errNoAdmin)
	}
	if c.IsTopic(t.Context(), dlq.Place{Entity: "events"}) {
		t.Error("an entity of which nothing is known counts as a topic")
	}
}

func TestAClientOpensTheRedisOfItsFleet(t *testing.T) {
	m := redistest.InMemory(t)
	addr := serve(t)
	flags := map[string]string{"namespace": namespaceAt(addr), "redis": "redis://" + m.Addr()}
	store, err := open(t, flags).OpenRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // nothing is left to write
	if err := store.View().Report(t.Context(), redisstore.Process{Monitor: true}, nil); err != nil {
		t.Fatal(err)
	}
	// Through an endpoint, the fleet is still that of the namespace.
	through := open(t, flags)
	for fleet, want := range map[string]int{addr: 1, "elsewhere": 0} {
		through.Fleet = fleet
		s, err := through.OpenRedis()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() }) // as above
		if totals, err := s.View().Read(t.Context()); err != nil || totals.Monitors() != want {
			t.Errorf("%d monitors of the fleet of %s, %v; want %d", totals.Monitors(), fleet, err, want)
		}
	}
}

func TestAClientMeasuresTheClockOfTheBroker(t *testing.T) {
	flags := map[string]string{"namespace": namespaceAt(serve(t))}
	for _, inRedis := range []bool{false, true} {
		if inRedis {
			flags["redis"], flags["companionStore"] = "redis://"+redistest.InMemory(t).Addr(), "redis"
		}
		ahead, uncertainty, err := open(t, flags).MeasureClock(t.Context())
		if err != nil || ahead.Abs() > uncertainty+100*time.Millisecond {
			t.Errorf("companions in Redis %v: MeasureClock = %v ahead ±%v, %v; want the same time", inRedis, ahead, uncertainty, err)
		}
	}
	flags["monitorQueue"] = "none"
	if _, _, err := open(t, flags).MeasureClock(t.Context()); err == nil {
		t.Error("MeasureClock without a monitor queue = nil, want an error")
	}
}

func TestAnInvalidNamespaceIsAnErrorOfTheConfiguration(t *testing.T) {
	c, err := config.Load("", func(string) string { return "" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	var invalid *config.Error
	for _, c := range []*config.Config{c.WithNamespace("contoso"), c.WithNamespace("")} {
		if _, err := Open(c); !errors.As(err, &invalid) {
			t.Errorf("Open of the namespace %q = %v, want an error of the configuration", c.Namespace, err)
		}
	}
}
