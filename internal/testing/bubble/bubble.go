// SPDX-License-Identifier: Apache-2.0

// Package bubble has the parts that the scenes of the tests share. They are a namespace on fake
// time with a work queue and a monitor queue, a webhook that takes the events, and the checks of a
// test.
//
// The tests of a package embed a [Scene] in a scene of their own, which adds the components that
// they test.
package bubble

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"overdue/alert"
	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/httpclient"
	"overdue/internal/redisstore"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
)

// The queues of every scene.
const (
	WorkQueue    = "orders"
	OtherQueue   = "unwatched"
	MonitorQueue = "overdue-monitor"
)

// A Scene is a namespace and a webhook.
type Scene struct {
	*testing.T
	Namespace  *brokertest.Namespace
	Client     *azservicebus.Client // of the app and the consumer
	Scheduler  *scheduler.Scheduler // of the process that sends
	Hook       *hooktest.Hook
	Sinks      *pipenet.Network       // where the webhooks are
	Registries []*prometheus.Registry // the metrics of each process
	Expiry     queue.Expiry           // as InModes has set it
	Adopt      []string               // the entities that the monitors look through every two seconds
	NewStore   func() *Companions     // of each process: where companions are kept; nil: on the monitor queue
	Store      *Companions            // of the process that sends, and of observers

	direct map[string]*azservicebus.Sender
}

// Base is the scene itself, for functions that take any scene that embeds one.
func (s *Scene) Base() *Scene { return s }

// Open starts the namespace and the webhook. Call it in the bubble, with T set.
func (s *Scene) Open(configure func(*broker.Config)) {
	s.Helper()
	s.Namespace = brokertest.New(s.T, func(c *broker.Config) {
		c.AutoCreate = false
		work := broker.QueueConfig{Name: WorkQueue, DeadLetteringOnMessageExpiration: true, LockDuration: time.Minute}
		other := work
		other.Name = OtherQueue
		c.Queues = []broker.QueueConfig{work, other, {Name: MonitorQueue, MaxDeliveryCount: 2000}}
		configure(c)
	})
	s.Client = s.Namespace.Client(s.T)
	if s.NewStore != nil {
		s.Store = s.NewStore()
	}
	s.Sinks = pipenet.New()
	s.Hook = hooktest.New(s.T, s.Sinks, "hook")
}

// Logger writes warnings to the log of the test.
func (s *Scene) Logger() *zap.Logger {
	return zaptest.NewLogger(s.T, zaptest.Level(zap.WarnLevel))
}

// MeasureClock measures the clock of the broker for the process that sends, as a running one does.
func (s *Scene) MeasureClock() {
	s.Helper()
	if err := s.Scheduler.MeasureClock(s.Context()); err != nil {
		s.Fatalf("MeasureClock: %v", err)
	}
}

// Webhook is a sink that posts to the host of that name.
func (s *Scene) Webhook(host string) alert.Alerter {
	s.Helper()
	a, err := alert.NewWebhook(host, alert.HTTP{URL: "http://" + host + "/", Client: httpclient.New(&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Sinks.Dial(ctx, host) }, IdleConnTimeout: time.Second,
	}, 0)})
	s.Must(err)
	return a
}

// Run runs a component until the returned function is called, or the scene ends.
func (s *Scene) Run(run func(context.Context) error) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("Run = %v, want nil after a stop", err)
		}
	})
	s.Cleanup(stop)
	return stop
}

// Must ends the test on an error.
func (s *Scene) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("unexpected error: %v", err)
	}
}

// WithScheduler runs act on fake time, with a scheduler on a namespace that has a monitor queue.
func WithScheduler(t *testing.T, act func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler), configure ...func(*broker.Config, *scheduler.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := scheduler.Config{MonitorQueue: MonitorQueue}
		ns := brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			c.Queues = []broker.QueueConfig{{Name: MonitorQueue}}
			for _, f := range configure {
				f(c, &cfg)
			}
		})
		cfg.Links = ns.Links(t)
		s, err := scheduler.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) }) // some tests have closed it
		act(t, ns, s)
	})
}

// OnMonitorQueue are the messages of the monitor queue.
func OnMonitorQueue(t *testing.T, ns *brokertest.Namespace) []queue.View {
	t.Helper()
	q, ok := ns.Broker.Queue(MonitorQueue)
	if !ok {
		t.Fatal("there is no monitor queue")
	}
	return brokertest.Seen(q.Peek(nil, 0, 10_000))
}

// MessageIDs are the message-ids that the companions on the monitor queue name, in the order in
// which the broker accepted them.
func MessageIDs(t *testing.T, ns *brokertest.Namespace) (all []string) {
	t.Helper()
	for _, v := range OnMonitorQueue(t, ns) {
		for _, r := range ParseCompanion(t, v).References {
			all = append(all, r.MessageID)
		}
	}
	return all
}

// ParseCompanion reads a companion as the broker holds it.
func ParseCompanion(t *testing.T, v queue.View) scheduler.Companion {
	t.Helper()
	m, err := amqp.ParseMessage(v.Body)
	if err != nil {
		t.Fatal(err)
	}
	for body, err := range amqp.DataSections(m.Body) {
		if err != nil {
			t.Fatal(err)
		}
		c, err := scheduler.ParseCompanion(body)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Fatal("a companion has no body")
	return scheduler.Companion{}
}

// CompanionOf is a companion for one message of the work queue.
func CompanionOf(id string, deadline time.Time) scheduler.Companion {
	return scheduler.Companion{Entity: WorkQueue, References: []scheduler.Reference{{MessageID: id, Sent: time.Now(), Deadline: deadline, Stated: "ttl"}}}
}

// Companions are the companions that one process of a scene keeps in Redis. They notify the other
// processes as Redis would: a connection that a goroutine reads from stops fake time.
type Companions struct {
	*redisstore.Companions
	wake func()
}

// Put keeps companions, and wakes the workers.
func (c *Companions) Put(ctx context.Context, items []redisstore.Item) error {
	err := c.Companions.Put(ctx, items)
	c.wake()
	return err
}

// GiveBack gives leases back, and wakes the workers.
func (c *Companions) GiveBack(ctx context.Context, l redisstore.Lease) error {
	err := c.Companions.GiveBack(ctx, l)
	c.wake()
	return err
}

// InRedis keeps the companions of a scene in the Redis at addr.
func InRedis[S interface{ Base() *Scene }](addr string) func(S, *broker.Config) {
	return InRedisWithSlack[S](addr, 20)
}

// InRedisWithSlack is InRedis with timeouts that are longer by a factor.
func InRedisWithSlack[S interface{ Base() *Scene }](addr string, slack float64) func(S, *broker.Config) {
	return func(scene S, _ *broker.Config) {
		s := scene.Base()
		var all []*redisstore.Companions
		s.NewStore = func() *Companions {
			c := s.OpenRedis(addr, slack).Companions()
			c.Heard()
			all = append(all, c)
			return &Companions{c, func() {
				for _, c := range all {
					c.Heard()
				}
			}}
		}
	}
}

// OpenRedis opens what a process shares with others. The timeouts of Redis are real time, and a
// busy machine must not look like a Redis that is gone: slack makes them longer. There are enough
// connections that nobody waits for one: go-redis waits with timers that it shares between bubbles.
func (s *Scene) OpenRedis(addr string, slack float64) *redisstore.Store {
	s.Helper()
	a, err := redisstore.ParseAddress("redis://" + addr)
	s.Must(err)
	store, err := redisstore.Open(redisstore.Config{Address: a, Fleet: []string{brokertest.Host, MonitorQueue}, Slack: slack, Connections: 1024})
	s.Must(err)
	s.Cleanup(func() {
		_ = store.Close()           // its server may be gone
		time.Sleep(2 * time.Second) // then its pool checks every second whether it is back
	})
	return store
}

// Settled waits until there is no companion any more.
func (s *Scene) Settled(within time.Duration) {
	s.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		left := s.CompanionsLeft()
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%d companions are left after %v", left, within)
		}
	}
}

// CompanionsLeft is how many companions and notes there are, wherever they are kept.
func (s *Scene) CompanionsLeft() int {
	s.Helper()
	c := s.CompanionsKept()
	return int(c.Waiting + c.Leased)
}

// CompanionsKept counts the companions that wait, that are due, and that failed, wherever they are
// kept.
func (s *Scene) CompanionsKept() redisstore.Counts {
	s.Helper()
	q := s.Queue(MonitorQueue).Counts()
	if s.NewStore == nil {
		return redisstore.Counts{Waiting: int64(q.Scheduled), Leased: int64(q.Active), Dead: int64(q.DeadLetter)}
	}
	if q.Scheduled > 0 {
		s.Errorf("%d messages are scheduled on the monitor queue, want the companions in Redis", q.Scheduled)
	}
	c, err := s.Store.Counts(s.Context())
	s.Must(err)
	return c
}
