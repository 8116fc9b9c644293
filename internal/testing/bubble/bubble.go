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
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/httpclient"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
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
