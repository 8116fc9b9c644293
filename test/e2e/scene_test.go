// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/alert"
	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/monitorqueue"
	"overdue/internal/operations"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/bubble"
	"overdue/internal/testing/pipenet"
	"overdue/monitor"
	"overdue/monitor/adopt"
	"overdue/proxy"
	"overdue/scheduler"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	workQueue    = bubble.WorkQueue
	otherQueue   = bubble.OtherQueue
	monitorQueue = bubble.MonitorQueue
	topic        = bubble.Topic
)

// Helpers that the scenes share, under the names that the tests use.
var (
	ttl, lives, subscription, of = bubble.TTL, bubble.Lives, bubble.Subscription, bubble.SubscriptionPath

	inModes          = bubble.Play[*scene](play).InModes
	inStores         = bubble.Play[*scene](play).InStores
	inRedisWithSlack = bubble.InRedisWithSlack[*scene]
	inRedis          = bubble.InRedis[*scene]
	adopts           = bubble.Adopts[*scene]
)

// scene is a namespace, a proxy and a monitor in front of it, and a webhook.
type scene struct {
	*bubble.Scene
	worker           *monitor.Worker // the last that was started
	proxy            *proxy.Proxy
	settings         monitor.Settings
	sent             int                 // by sendBatch
	written          atomic.Int64        // companions
	slots            bool                // whether slots stand for messages wherever they can
	auto             bool                // only where they pay
	stamp            bool                // whether the proxy stamps TTLs
	monitored        map[string]bool     // what the proxy writes companions for
	undescribed      bool                // the monitor is not notified how entities were made
	monitorQueues    int                 // of the processes that start next; 0 = 1
	subscriptionLife time.Duration       // of the times to live of a topic's subscriptions, as the proxy knows it
	oneProcess       bool                // proxy and monitor share a process, and with it what is known of settlements
	counter          *operations.Counter // of such processes
	deadlines        *operations.Deadlines
	journal          string                                  // directory of the proxy's journal; "" = it has none
	forward          func(*link.Namespace) *alert.Forward    // likewise
	brimDial         func(context.Context) (net.Conn, error) // to the endpoint that brim sends through
	shared           func() *redisstore.Store                // of each process; nil: there is no Redis
	monitorLine      *pipenet.Network                        // of the monitors to the broker; nil: the one that all share

	mu sync.Mutex // guards settings while monitors run
}

// play runs a scene on fake time.
func play(t *testing.T, act func(*scene), configure ...func(*scene, *broker.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{Scene: &bubble.Scene{T: t}, stamp: true, monitored: map[string]bool{workQueue: true}}
		s.Open(func(c *broker.Config) {
			for _, f := range configure {
				f(s, c)
			}
		})
		if s.oneProcess {
			s.Registries = []*prometheus.Registry{prometheus.NewRegistry()}
			s.counter, s.deadlines = operations.New(s.Registries[0]), operations.NewDeadlines(s.Registries[0])
		}
		s.Scheduler = s.newScheduler(s.counter)
		s.proxy = s.newProxy(s.Scheduler)
		act(s)
	})
}

// newProxy is a proxy in front of the namespace, with its own connection for what comes by REST.
func (s *scene) newProxy(sc *scheduler.Scheduler) *proxy.Proxy {
	s.Helper()
	p, err := proxy.New(proxy.Config{
		Links: s.Namespace.Links(s.T), Scheduler: sc, Journal: s.openJournal(sc), MonitorQueue: monitorQueue, Log: s.Logger(),
		AMQP: relay.Config{Dial: s.Namespace.Dial, Hostname: "overdue.test"}, Upstream: proxy.Upstream{Dial: s.Namespace.Dial},
		Settings: func(entity string) proxy.Settings {
			now := s.settingsNow()
			return proxy.Settings{
				Monitored: s.monitored[entity], StampTTL: s.stamp,
				Deadline: now.Deadline, DefaultMessageTimeToLive: now.DefaultMessageTimeToLive, SubscriptionTimeToLive: s.subscriptionLife,
				Findable: s.slots, CompleteWithin: now.CompleteWithin, WarnBefore: now.WarnBefore,
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

// settingsNow returns the settings, which may change while monitors run.
func (s *scene) settingsNow() monitor.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

func (s *scene) newScheduler(o *operations.Counter) *scheduler.Scheduler {
	s.Helper()
	cfg := scheduler.Config{
		Links: s.Namespace.Links(s.T), MonitorQueue: monitorQueue, MonitorQueues: s.monitorQueues, Operations: o,
		Companions: "slot", Written: func(n int, _ error) { s.written.Add(int64(n)) },
	}
	if s.auto {
		cfg.Companions = "auto"
	}
	if s.NewStore != nil {
		cfg.Store = s.Store
		if !s.oneProcess {
			cfg.Store = s.NewStore()
		}
	}
	if s.oneProcess {
		cfg.Deadlines = s.deadlines
	}
	sc, err := scheduler.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	if s.oneProcess {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- sc.RunCancel(ctx) }()
		s.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				s.Errorf("RunCancel = %v, want nil after a stop", err)
			}
		})
	}
	s.Cleanup(func() { _ = sc.Close(context.Background()) }) // a test may have broken its connection
	return sc
}

// startMonitor runs a monitor until the returned function is called, or the scene ends.
func (s *scene) startMonitor() (stop func()) {
	s.Helper()
	alerters := []alert.Alerter{s.Webhook("hook")}
	registry, sc, counter := prometheus.NewRegistry(), s.Scheduler, s.counter
	s.Registries = append(s.Registries, registry)
	if !s.oneProcess {
		counter = operations.New(registry)
		sc = s.newScheduler(counter)
	}
	links := s.links()
	if s.forward != nil {
		alerters = append(alerters, s.forward(links))
	}
	cfg := monitor.Config{
		Links: links, Scheduler: sc, Queues: monitorqueue.Of(monitorQueue, s.monitorQueues),
		Namespace: "overdue.test", Settings: func(context.Context, string) monitor.Settings { return s.settingsNow() },
		Describe: s.describe, Alerters: alerters, Log: s.Logger(), Registerer: registry, Operations: counter, Deadlines: s.deadlines,
	}
	for _, name := range s.Adopt {
		cfg.Adopt = append(cfg.Adopt, adopt.Entity{Entity: name, Every: 2 * time.Second})
	}
	if s.undescribed {
		cfg.Describe = nil
	}
	if s.NewStore != nil {
		cfg.Store = s.Store
		if !s.oneProcess {
			cfg.Store = s.NewStore()
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
	return s.Run(w.Run)
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
