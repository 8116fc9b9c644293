// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operator/dlq"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

const (
	monitorQueue  = "overdue-monitor"
	companionType = "application/vnd.overdue.companion+json" // on the wire
)

var orders = dlq.Place{Entity: "orders"}

// A scene is a namespace with a monitor queue, and a scheduler that writes companions to it.
type scene struct {
	*testing.T
	ns        *brokertest.Namespace
	source    *Source
	scheduler *scheduler.Scheduler
}

func setup(t *testing.T, configure ...func(*broker.Config)) *scene {
	t.Helper()
	ns := brokertest.New(t, append([]func(*broker.Config){func(c *broker.Config) {
		c.AutoCreate, c.Expiry = false, queue.Eager
		c.Queues = []broker.QueueConfig{
			{Name: monitorQueue}, {Name: "orders", DeadLetteringOnMessageExpiration: true}, {Name: "seated", RequiresSession: true},
		}
	}}, configure...)...)
	s := &scene{T: t, ns: ns}
	s.source = &Source{Links: s.links(link.SAS("k", "c2VjcmV0")), MonitorQueue: monitorQueue}
	return s
}

func (s *scene) links(tokens link.TokenSource) *link.Namespace {
	links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: s.ns.Dial, Tokens: tokens})
	s.Cleanup(func() { _ = links.Close() }) // a test may have cut it
	return links
}

// schedule writes companions, with one scheduler for each scene.
func (s *scene) schedule(configure func(*scheduler.Config), companions ...scheduler.Companion) {
	s.Helper()
	if s.scheduler == nil {
		cfg := scheduler.Config{Links: s.source.Links, MonitorQueue: monitorQueue, Companions: "each"}
		if configure != nil {
			configure(&cfg)
		}
		var err error
		if s.scheduler, err = scheduler.New(cfg); err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = s.scheduler.Close(context.Background()) }) // nothing is in flight
	}
	for _, c := range companions {
		if err := s.scheduler.Schedule(s.Context(), c); err != nil {
			s.Fatal(err)
		}
	}
}

// scheduleSlot writes the companion of the slot of a message that is sent now and lives a minute.
func (s *scene) scheduleSlot(id string) scheduler.Companion {
	s.Helper()
	s.schedule(func(c *scheduler.Config) { c.Companions = "slot" })
	if err := s.scheduler.MeasureClock(s.Context()); err != nil {
		s.Fatal(err)
	}
	now := time.Now()
	c := companionOf(id, now, time.Minute)
	c.Findable, c.References[0].From, c.References[0].Until = true, now, now.Add(time.Millisecond)
	s.schedule(nil, c)
	return c
}

// useRedis has companions kept in Redis.
func (s *scene) useRedis(address string) *redisstore.Store {
	s.Helper()
	a, err := redisstore.ParseAddress("redis://" + address)
	if err != nil {
		s.Fatal(err)
	}
	store, err := redisstore.Open(redisstore.Config{Address: a, Fleet: []string{"overdue.test", monitorQueue}, Slack: 20})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = store.Close() }) // it was only read
	s.source.Redis = store
	return store
}

// companionOf is the companion of one message of orders.
func companionOf(id string, sent time.Time, ttl time.Duration) scheduler.Companion {
	return scheduler.Companion{Entity: "orders", References: []scheduler.Reference{
		{MessageID: id, Sent: sent, Deadline: sent.Add(ttl), Within: ttl, Stated: "ttl"},
	}}
}

// send sends a message with a time to live, unless that is 0.
func (s *scene) send(entity, id string, ttl time.Duration, adjust ...func(*azservicebus.Message)) {
	s.Helper()
	sender, err := s.ns.Client(s.T).NewSender(entity, nil)
	if err != nil {
		s.Fatal(err)
	}
	m := &azservicebus.Message{MessageID: &id, Body: []byte("body")}
	if ttl > 0 {
		m.TimeToLive = to.Ptr(ttl)
	}
	for _, f := range adjust {
		f(m)
	}
	if err := sender.SendMessage(s.Context(), m, nil); err != nil {
		s.Fatal(err)
	}
}

// receive takes the next message of orders, and settles it with settle.
func (s *scene) receive(settle func(*azservicebus.Receiver, *azservicebus.ReceivedMessage) error) *azservicebus.ReceivedMessage {
	s.Helper()
	r, err := s.ns.Client(s.T).NewReceiverForQueue("orders", nil)
	if err != nil {
		s.Fatal(err)
	}
	ms, err := r.ReceiveMessages(s.Context(), 1, nil)
	if err != nil {
		s.Fatal(err)
	}
	if err := settle(r, ms[0]); err != nil {
		s.Fatal(err)
	}
	return ms[0]
}

// text is what a WriteText writes.
func (s *scene) text(write func(io.Writer) error) string {
	s.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		s.Fatal(err)
	}
	return b.String()
}
