// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operations"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sdk"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/pipenet"
	"overdue/monitor"
	"overdue/scheduler"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
)

const (
	workQueue    = "orders"
	otherQueue   = "unwatched"
	monitorQueue = "overdue-monitor"
)

// scene is a namespace, a scheduler that writes companions as the proxy does, monitors, and a
// webhook.
type scene struct {
	worker *monitor.Worker // the last that was started
	*testing.T
	ns               *brokertest.Namespace
	client           *azservicebus.Client // the app's and the consumer's own
	scheduler        *scheduler.Scheduler
	settings         monitor.Settings
	sent             int             // by sendBatch
	written          atomic.Int64    // companions
	slots            bool            // whether slots stand for messages wherever they can
	auto             bool            // only where they pay
	stamp            bool            // whether the proxy stamps TTLs
	monitored        map[string]bool // what the proxy writes companions for
	undescribed      bool            // the monitor has no descriptions of entities
	remembers        *entities.Store // caches the descriptions; nil: no cache
	queueLife        time.Duration   // the default time to live as the sender knows it
	subscriptionLife time.Duration   // the shortest of the subscriptions, as the sender knows it
	expiry           queue.Expiry    // as inModes has set it
	metrics          []*prometheus.Registry
	oneProcess       bool // monitors and sender share a scheduler
	sending          *sdk.Client
	senders          map[string]*sdk.Sender
	hook             *hooktest.Hook
	sinks            *pipenet.Network
	monitorLinks     *link.Namespace                          // of the last monitor
	moreHooks        []string                                 // hosts of further webhooks
	groups           func(*scheduler.Scheduler) *alert.Groups // of each monitor that is started; nil: none
	adopt            []monitor.Adoption
	direct           map[string]*azservicebus.Sender // of messages that come through no endpoint
	newStore         func() *waking                  // of each process: where companions are kept; nil: on the monitor queue
	store            *waking                         // of the process that has both, and of observers
}

// play runs a scene on fake time.
func play(t *testing.T, act func(*scene), configure ...func(*scene, *broker.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, stamp: true, monitored: map[string]bool{workQueue: true}}
		s.ns = brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			work := broker.QueueConfig{Name: workQueue, DeadLetteringOnMessageExpiration: true, LockDuration: time.Minute}
			other := work
			other.Name = otherQueue
			c.Queues = []broker.QueueConfig{work, other, {Name: monitorQueue, MaxDeliveryCount: 2000}}
			for _, f := range configure {
				f(s, c)
			}
		})
		s.client = s.ns.Client(t)
		if s.newStore != nil {
			s.store = s.newStore()
		}
		s.scheduler = s.newScheduler(nil)
		s.sending, s.senders = s.ns.Lasting(t, retryAsOverdueDoes), map[string]*sdk.Sender{}
		s.sinks = pipenet.New()
		s.hook = hooktest.New(t, s.sinks, "hook")
		act(s)
	})
}

// retryAsTheBinary sets what cmd/overdue has the SDK do after a failure.
func retryAsOverdueDoes(o *azservicebus.ClientOptions) {
	o.RetryOptions = azservicebus.RetryOptions{MaxRetries: 9, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 500 * time.Millisecond}
}

func (s *scene) logger() *zap.Logger {
	return zaptest.NewLogger(s.T, zaptest.Level(zap.WarnLevel))
}

func (s *scene) newScheduler(o *operations.Counter) *scheduler.Scheduler {
	s.Helper()
	cfg := scheduler.Config{
		Client: s.ns.Lasting(s.T, retryAsOverdueDoes), Links: s.links(), MonitorQueue: monitorQueue, Operations: o,
		Companions: "slot", Written: func(n int, _ error) { s.written.Add(int64(n)) },
	}
	if s.auto {
		cfg.Companions = "auto"
	}
	if s.newStore != nil {
		cfg.Store = s.newStore()
	}
	sc, err := scheduler.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = sc.Close(context.Background()) }) // a test may have broken its connection
	return sc
}

// measure lets the sender know the broker's clock, as a running one does.
func (s *scene) measure() {
	s.Helper()
	if err := s.scheduler.MeasureClock(s.Context()); err != nil {
		s.Fatalf("MeasureClock: %v", err)
	}
}

// webhook is a sink that posts to the host of that name.
func (s *scene) webhook(host string) alert.Alerter {
	s.Helper()
	a, err := alert.NewWebhook(host, alert.HTTP{URL: "http://" + host + "/", Client: &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.sinks.Dial(ctx, host) }, IdleConnTimeout: time.Second},
	}})
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// startMonitor runs a monitor until the returned function is called, or the scene ends.
func (s *scene) startMonitor() (stop func()) {
	s.Helper()
	alerters := []alert.Alerter{s.webhook("hook")}
	for _, name := range s.moreHooks {
		alerters = append(alerters, s.webhook(name))
	}
	registry := prometheus.NewRegistry()
	s.metrics = append(s.metrics, registry)
	counter := operations.New(registry)
	sc := s.scheduler
	if !s.oneProcess {
		sc = s.newScheduler(counter)
	}
	if s.groups != nil {
		alerters = append(alerters, s.groups(sc))
	}
	links := s.links()
	s.monitorLinks = links
	cfg := monitor.Config{
		Links: links, Scheduler: sc, MonitorQueue: monitorQueue,
		Namespace: "overdue.test", Settings: func(context.Context, string) monitor.Settings { return s.settings },
		Describe: s.describe, Alerters: alerters, Log: s.logger(), Registerer: registry, Operations: counter, Adopt: s.adopt,
	}
	if s.undescribed {
		cfg.Describe = nil
	}
	if s.newStore != nil {
		cfg.Store = s.newStore()
	}
	if err := sc.MeasureClock(s.Context()); err != nil {
		s.Fatalf("MeasureClock: %v", err)
	}
	w, err := monitor.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.worker = w
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("Run = %v, want nil after a stop", err)
		}
	})
	s.Cleanup(stop)
	return stop
}

// links lead to the namespace until the scene ends.
func (s *scene) links() *link.Namespace {
	links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: s.ns.Dial, Tokens: link.SAS("RootManageSharedAccessKey", "c2VjcmV0")})
	s.Cleanup(func() { _ = links.Close() }) // its connection may be broken
	return links
}

func ttl(d time.Duration) string { return fmt.Sprintf(`"TimeToLive":%g`, d.Seconds()) }

// queue returns the engine's queue, for checks without the protocol.
func (s *scene) queue(name string) *queue.Queue {
	s.Helper()
	q, ok := s.ns.Broker.Queue(name)
	if !ok {
		s.Fatalf("the broker has no queue %s", name)
	}
	return q
}

// waiting and dead are what stands in a queue and in its dead-letter queue.
func (s *scene) waiting(name string) []queue.View { return s.queue(name).Peek(nil, 0, 1<<20) }
func (s *scene) dead(name string) []queue.View {
	return s.queue(name).DeadLetterQueue().Peek(nil, 0, 1<<20)
}

// lags are how long after their deadlines the dead letters of a queue were moved, in order.
// All of them have to have died of their time-to-live, none of them early.
func (s *scene) lags(name string) []time.Duration {
	s.Helper()
	var lags []time.Duration
	for _, m := range s.dead(name) {
		if m.DeadLetterReason != "TTLExpiredException" {
			s.Errorf("%s: dead-letter reason %q, want TTLExpiredException", m.MessageID, m.DeadLetterReason)
		}
		lag := m.DeadLetteredTime.Sub(m.ExpiresAt)
		if lag < 0 {
			s.Errorf("%s was dead-lettered %v early", m.MessageID, -lag)
		}
		lags = append(lags, lag)
	}
	slices.Sort(lags)
	return lags
}

// receive takes one message under lock, as a consumer would.
func (s *scene) receive(queue string) (*azservicebus.Receiver, *azservicebus.ReceivedMessage) {
	s.Helper()
	r, err := s.client.NewReceiverForQueue(queue, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = r.Close(context.Background()) })
	ms, err := r.ReceiveMessages(s.Context(), 1, nil)
	if err != nil || len(ms) != 1 {
		s.Fatalf("receive from %s = %d messages, %v", queue, len(ms), err)
	}
	return r, ms[0]
}

// settled waits until the monitor queue holds no companion any more.
func (s *scene) settled(within time.Duration) {
	s.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		left := s.companionsLeft()
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%d companions are left after %v", left, within)
		}
	}
}

// companionsLeft is how many companions and notes there are, wherever they are kept.
func (s *scene) companionsLeft() int {
	s.Helper()
	c := s.companionsKept()
	return int(c.Waiting + c.Leased)
}

// companionsKept are those that wait, are due, and could not be done, wherever they are kept.
func (s *scene) companionsKept() redisstore.Counts {
	s.Helper()
	q := s.queue(monitorQueue).Counts()
	if s.newStore == nil {
		return redisstore.Counts{Waiting: int64(q.Scheduled), Leased: int64(q.Active), Dead: int64(q.DeadLetter)}
	}
	if q.Scheduled > 0 {
		s.Errorf("%d messages are scheduled on the monitor queue, which cannot", q.Scheduled)
	}
	c, err := s.store.Counts(s.Context())
	s.must(err)
	return c
}
