// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/alert"
	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operations"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/pipenet"
	"overdue/monitor"
	"overdue/proxy"
	"overdue/scheduler"
	"overdue/scheduler/index"

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

// scene is a namespace, a proxy and a monitor in front of it, and a webhook.
type scene struct {
	worker *monitor.Worker // the last that was started
	*testing.T
	ns               *brokertest.Namespace
	client           *azservicebus.Client // the app's and the consumer's own
	scheduler        *scheduler.Scheduler
	proxy            *proxy.Proxy
	settings         monitor.Settings
	sent             int             // by sendBatch
	written          atomic.Int64    // companions
	slots            bool            // whether slots stand for messages wherever they can
	auto             bool            // only where they pay
	stamp            bool            // whether the proxy stamps TTLs
	monitored        map[string]bool // what the proxy writes companions for
	undescribed      bool            // the monitor is not notified how entities were made
	subscriptionLife time.Duration   // of the times to live of a topic's subscriptions, as the proxy knows it
	expiry           queue.Expiry    // as inModes has set it
	metrics          []*prometheus.Registry
	oneProcess       bool                // proxy and monitor share a process, and with it what is known of settlements
	counter          *operations.Counter // of such processes
	deadlines        *operations.Deadlines
	journal          string // directory of the proxy's journal; "" = it has none
	hook             *hooktest.Hook
	sinks            *pipenet.Network
	adopt            []monitor.Adoption
	direct           map[string]*azservicebus.Sender         // of messages that come through no endpoint
	forward          func(*link.Namespace) *alert.Forward    // likewise
	brimDial         func(context.Context) (net.Conn, error) // to the endpoint that brim sends through
	shared           func() *redisstore.Store                // of each process; nil: there is no Redis
	newStore         func() *waking                          // of each process: where companions are kept; nil: on the monitor queue
	store            *waking                                 // of the process that has both, and of observers
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
		if s.oneProcess {
			s.metrics = []*prometheus.Registry{prometheus.NewRegistry()}
			s.counter, s.deadlines = operations.New(s.metrics[0]), operations.NewDeadlines(s.metrics[0])
		}
		s.scheduler = s.newScheduler(s.counter)
		s.proxy = s.newProxy(s.scheduler)
		s.sinks = pipenet.New()
		s.hook = hooktest.New(t, s.sinks, "hook")
		act(s)
	})
}

// retryAsTheBinary sets what cmd/overdue has the SDK do after a failure.
func retryAsOverdueDoes(o *azservicebus.ClientOptions) {
	o.RetryOptions = azservicebus.RetryOptions{MaxRetries: 9, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 500 * time.Millisecond}
}

// newProxy is a proxy in front of the namespace, with its own connection for what comes by REST.
func (s *scene) newProxy(sc *scheduler.Scheduler) *proxy.Proxy {
	s.Helper()
	sending := s.ns.Lasting(s.T, retryAsOverdueDoes)
	p, err := proxy.New(proxy.Config{
		Client: sending, Scheduler: sc, Journal: s.openJournal(sc), MonitorQueue: monitorQueue, Log: s.logger(),
		AMQP: relay.Config{Dial: s.ns.Dial, Hostname: "overdue.test"},
		Settings: func(entity string) proxy.Settings {
			return proxy.Settings{
				Monitored: s.monitored[entity], StampTTL: s.stamp,
				Deadline: s.settings.Deadline, DefaultMessageTimeToLive: s.settings.DefaultMessageTimeToLive, SubscriptionTimeToLive: s.subscriptionLife,
				Findable: s.slots, CompleteWithin: s.settings.CompleteWithin, WarnBefore: s.settings.WarnBefore,
			}
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			s.Errorf("closing the proxy: %v", err)
		}
	})
	return p
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
		cfg.Store = s.store
		if !s.oneProcess {
			cfg.Store = s.newStore()
		}
	}
	if s.oneProcess {
		cfg.Index, cfg.Deadlines = index.NewMemory(0), s.deadlines
		if s.shared != nil {
			cfg.Index = index.NewShared(index.NewMemory(0), s.shared().Settlements(), func(error) {})
		}
	}
	sc, err := scheduler.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	if s.oneProcess {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 2)
		go func() { ended <- sc.RunCancel(ctx) }()
		go func() { ended <- sc.RunSharing(ctx) }()
		s.Cleanup(func() {
			cancel()
			if err := errors.Join(<-ended, <-ended); err != nil {
				s.Errorf("RunCancel and RunSharing = %v, want nil after a stop", err)
			}
		})
	}
	s.Cleanup(func() { _ = sc.Close(context.Background()) }) // a test may have broken its connection
	return sc
}

// measure lets the proxy know the broker's clock, as a running one does.
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
	registry, sc, counter := prometheus.NewRegistry(), s.scheduler, s.counter
	s.metrics = append(s.metrics, registry)
	if !s.oneProcess {
		counter = operations.New(registry)
		sc = s.newScheduler(counter)
	}
	links := s.links()
	if s.forward != nil {
		f := s.forward(links)
		alerters = append(alerters, f)
		s.Cleanup(func() { _ = f.Close(context.Background()) })
	}
	cfg := monitor.Config{
		Links: links, Scheduler: sc, MonitorQueue: monitorQueue,
		Namespace: "overdue.test", Settings: func(context.Context, string) monitor.Settings { return s.settings },
		Describe: s.describe, Alerters: alerters, Log: s.logger(), Registerer: registry, Operations: counter, Deadlines: s.deadlines, Adopt: s.adopt,
	}
	if s.undescribed {
		cfg.Describe = nil
	}
	if s.newStore != nil {
		cfg.Store = s.store
		if !s.oneProcess {
			cfg.Store = s.newStore()
		}
		if err := sc.MeasureClock(s.Context()); err != nil {
			s.Fatalf("MeasureClock: %v", err)
		}
	}
	if s.shared != nil {
		cfg.Notified = s.shared().Notified()
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

// send posts one message to a queue through the REST endpoint.
func (s *scene) send(queue, id string, properties string, headers ...string) {
	s.Helper()
	if code, body := s.post(queue, id, properties, headers...); code != http.StatusCreated {
		s.Fatalf("send %s = %d %s, want 201", id, code, body)
	}
}

func (s *scene) post(queue, id string, properties string, headers ...string) (int, string) {
	r := httptest.NewRequest(http.MethodPost, "/"+queue+"/messages", strings.NewReader("body of "+id))
	if properties != "" {
		properties = "," + properties
	}
	r.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId":%q%s}`, id, properties))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.proxy.ServeHTTP(w, r)
	return w.Code, w.Body.String()
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
