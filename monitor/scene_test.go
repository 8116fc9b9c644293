// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/monitorqueue"
	"overdue/internal/operations"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/bubble"
	"overdue/monitor"
	"overdue/monitor/adopt"
	"overdue/scheduler"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
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

	inModes         = bubble.Play[*scene](play).InModes
	inModeOfTurn    = bubble.Play[*scene](play).InModeOfTurn
	inStores        = bubble.Play[*scene](play).InStores
	inModesAndRedis = bubble.Play[*scene](play).InModesAndRedis
	inRedis         = bubble.InRedis[*scene]
	adopts          = bubble.Adopts[*scene]
)

// scene is a namespace, a scheduler that writes companions as the proxy does, monitors, and a
// webhook.
type scene struct {
	*bubble.Scene
	worker           *monitor.Worker // the last that was started
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
	oneProcess       bool            // monitors and sender share a scheduler
	sending          *azservicebus.Client
	senders          map[string]*azservicebus.Sender
	canary           string                                   // the queue of canaries
	monitorLinks     *link.Namespace                          // of the last monitor
	moreHooks        []string                                 // hosts of further webhooks
	groups           func(*scheduler.Scheduler) *alert.Groups // of each monitor that is started; nil: none
	mutes            bool                                     // whether monitors ask for mutes
	unknown          chan monitor.Unknown                     // gets the unknown verdicts
}

// wantUnknown wants an unknown verdict about each of these messages, for that reason, and no others.
func (s *scene) wantUnknown(why string, ids ...string) {
	s.Helper()
	var got []string
	for n := len(s.unknown); n > 0; n-- {
		u := <-s.unknown
		got = append(got, u.MessageID)
		if !strings.Contains(u.Why, why) || u.Deadline.IsZero() || u.Judged.Before(u.Deadline) {
			s.Errorf("%+v, want the reason %q, a deadline and a verdict after it", u, why)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, ids) {
		s.Errorf("unknown are %q, want %q", got, ids)
	}
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
		s.Scheduler = s.newScheduler(nil)
		options := s.Namespace.ClientOptions()
		options.RetryOptions = azservicebus.RetryOptions{MaxRetries: 9, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 500 * time.Millisecond}
		s.sending = brokertest.NewClient(t, s.Namespace.ConnectionString(), options)
		s.senders = map[string]*azservicebus.Sender{}
		s.unknown = make(chan monitor.Unknown, 10_000)
		act(s)
	})
}

func (s *scene) newScheduler(o *operations.Counter) *scheduler.Scheduler {
	s.Helper()
	cfg := scheduler.Config{
		Links: s.Namespace.Links(s.T), MonitorQueue: monitorQueue, Operations: o,
		Companions: "slot", Written: func(n int, _ error) { s.written.Add(int64(n)) },
	}
	if s.auto {
		cfg.Companions = "auto"
	}
	if s.NewStore != nil {
		cfg.Store = s.NewStore()
	}
	sc, err := scheduler.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = sc.Close(context.Background()) }) // a test may have broken its connection
	return sc
}

// startMonitor runs a monitor until the returned function is called, or the scene ends.
func (s *scene) startMonitor() (stop func()) {
	s.Helper()
	alerters := []alert.Alerter{s.Webhook("hook")}
	for _, name := range s.moreHooks {
		alerters = append(alerters, s.Webhook(name))
	}
	registry := prometheus.NewRegistry()
	s.Registries = append(s.Registries, registry)
	counter := operations.New(registry)
	sc := s.Scheduler
	if !s.oneProcess {
		sc = s.newScheduler(counter)
	}
	if s.groups != nil {
		alerters = append(alerters, s.groups(sc))
	}
	links := s.Namespace.Links(s.T)
	s.monitorLinks = links
	cfg := monitor.Config{
		Links: links, Scheduler: sc, Queues: monitorqueue.Of(monitorQueue, 1),
		Namespace: "overdue.test", Settings: func(context.Context, string) monitor.Settings { return s.settings },
		Known: func() []string { return slices.Collect(maps.Keys(s.monitored)) }, Describe: s.describe, Alerters: alerters, Log: s.Logger(), Registerer: registry, Operations: counter,
	}
	cfg.Unknown = func(u monitor.Unknown) { s.unknown <- u }
	cfg.Deadlines = operations.NewDeadlines(registry)
	cfg.Deadlines.SetCanary(s.canary)
	for _, name := range s.Adopt {
		cfg.Adopt = append(cfg.Adopt, adopt.Entity{Entity: name, Every: 2 * time.Second})
	}
	if s.undescribed {
		cfg.Describe = nil
	}
	if s.NewStore != nil {
		cfg.Store = s.NewStore()
	}
	if err := sc.MeasureClock(s.Context()); err != nil {
		s.Fatalf("MeasureClock: %v", err)
	}
	if s.mutes {
		cfg.Alerters[0] = alert.Unmuted(cfg.Alerters[0])
		mutes := s.newMutes(sc, counter)
		cfg.Mutes = mutes
		s.Run(mutes.Run)
	}
	w, err := monitor.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.worker = w
	return s.Run(w.Run)
}

// receive takes one message under lock, as a consumer would.
func (s *scene) receive(queue string) (*azservicebus.Receiver, *azservicebus.ReceivedMessage) {
	s.Helper()
	r, err := s.Client.NewReceiverForQueue(queue, nil)
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
