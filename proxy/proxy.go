// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"overdue/scheduler"
)

// Config holds the settings of a Proxy. Client and Scheduler are needed; the zero value
// of everything else is sensible.
type Config struct {
	Client    *azservicebus.Client
	Scheduler *scheduler.Scheduler

	// Settings says what holds for an entity, whose name is spelled as the app spells it
	// (Service Bus ignores case). It is asked at every send, from many goroutines, and must
	// not block. nil monitors every entity and stamps TTLs.
	Settings func(entity string) Settings

	// MonitorQueue is refused as the entity of a send: who may send work may not write
	// companions, which anybody could forge. "" refuses none.
	MonitorQueue string

	MaxInFlight int           // sends at once, a batch counts as one; more wait. 0 = 1024
	MaxBodySize int64         // bytes of one request's body; 0 = 1 MiB
	SendTimeout time.Duration // of one send, retries included; also the longest wait for a free place. 0 = 30 s

	Log        *zap.Logger           // nil = none
	Registerer prometheus.Registerer // nil = metrics are kept and not registered
}

// Settings say what holds for one entity.
type Settings struct {
	// Monitored is false for an entity whose messages pass through untouched.
	Monitored bool
	// Deadline applies to messages that state none and have no TTL; 0 = none.
	Deadline time.Duration
	// DefaultMessageTimeToLive is the entity's own, as the broker has it: it caps the TTL of
	// every message. 0 = unlimited.
	DefaultMessageTimeToLive time.Duration
	// StampTTL puts a TTL on a message whose deadline comes before the TTL that it has, so
	// that the broker does not deliver it late even while no monitor runs.
	StampTTL bool
	// MaxMessageSize bounds the body of a message, in bytes; 0 = what the broker allows.
	MaxMessageSize int64
}

const (
	defaultMaxInFlight = 1024
	defaultMaxBodySize = 1 << 20
	defaultSendTimeout = 30 * time.Second
	// bodyBudget bounds the bytes of all request bodies held at once, so that many slow or
	// large uploads cost waiting and not memory.
	bodyBudget = 64 << 20
)

// A Proxy sends messages to Service Bus and promises their deadlines. It is safe for
// concurrent use.
type Proxy struct {
	cfg     Config
	senders *senders
	metrics *metrics
	places  chan struct{} // one per send in flight
	bodies  *semaphore.Weighted

	// companionFirst is set while the last word of the monitor queue was an error. Then the
	// companion goes before the work message instead of beside it: an app that retries would
	// otherwise leave one more work message with every refused attempt.
	companionFirst atomic.Bool

	mu     sync.Mutex
	closed bool
	sends  sync.WaitGroup // MUST only grow under mu while closed is false
}

// New makes a Proxy. It opens no link yet: the first send to an entity does.
func New(cfg Config) (*Proxy, error) {
	switch {
	case cfg.Client == nil:
		return nil, errors.New("proxy: a Service Bus client is needed")
	case cfg.Scheduler == nil:
		return nil, errors.New("proxy: a scheduler is needed")
	case cfg.MaxInFlight < 0, cfg.MaxBodySize < 0, cfg.SendTimeout < 0:
		return nil, errors.New("proxy: a bound is negative")
	}
	if cfg.Settings == nil {
		cfg.Settings = func(string) Settings { return Settings{Monitored: true, StampTTL: true} }
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = defaultMaxInFlight
	}
	if cfg.MaxBodySize == 0 {
		cfg.MaxBodySize = defaultMaxBodySize
	}
	if cfg.SendTimeout == 0 {
		cfg.SendTimeout = defaultSendTimeout
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("proxy: register metrics: %w", err)
	}
	return &Proxy{
		cfg:     cfg,
		senders: newSenders(cfg.Client, cfg.Log),
		metrics: m,
		places:  make(chan struct{}, cfg.MaxInFlight),
		bodies:  semaphore.NewWeighted(max(bodyBudget, cfg.MaxBodySize)),
	}, nil
}

// enter takes a place among the sends in flight. It waits for one until ctx ends or
// SendTimeout has passed, and fails with errBusy then, or with errClosed after Close.
func (p *Proxy) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.places <- struct{}{}:
	default:
		ctx, cancel := context.WithTimeout(ctx, p.cfg.SendTimeout)
		defer cancel()
		select {
		case p.places <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("proxy: %w", errBusy)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		<-p.places
		return nil, fmt.Errorf("proxy: %w", errClosed)
	}
	p.sends.Add(1)
	return func() {
		<-p.places
		p.sends.Done()
	}, nil
}

// Close refuses new sends, waits for those in flight and closes the links. The client
// and the scheduler stay open: they belong to the caller.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	landed := make(chan struct{})
	go func() {
		p.sends.Wait()
		close(landed)
	}()
	select {
	case <-landed:
	case <-ctx.Done():
		return fmt.Errorf("proxy: sends still in flight: %w", context.Cause(ctx))
	}
	return p.senders.close(ctx)
}
