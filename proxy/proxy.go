// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/amqp/relay"
	"overdue/internal/listener"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/sas"
	"overdue/internal/slack"
	"overdue/internal/traces"
	"overdue/proxy/proven"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

// Config configures a Proxy. Links, Scheduler, AMQP.Dial and Upstream.Dial are required; the zero
// value of every other field is sensible.
type Config struct {
	Links     *link.Namespace // over which sends of the REST endpoint go on
	Scheduler *scheduler.Scheduler
	// Journal stores companions while the monitor queue cannot be written, so that their sends
	// succeed. nil fails those sends.
	Journal *journal.Journal

	// Settings returns the settings of an entity, whose name has the app's spelling (Service Bus
	// ignores case). Every send calls it, from many goroutines, so it must not block. nil
	// monitors every entity and stamps TTLs.
	Settings func(entity string) Settings
	// Learn waits for the settings of an entity while Settings returns Unknown. It returns once
	// they are known or a default applies, and fails only when ctx ends first. nil: Settings
	// always knows.
	Learn func(ctx context.Context, entity string) (Settings, error)
	// Excluded reports that an entity is never monitored, even if the configuration changes: the
	// AMQP endpoint does not watch links to it. nil excludes none.
	Excluded func(entity string) bool

	// MonitorQueue is refused as the entity of a send: the right to send work messages must not
	// let an app forge companions. "" refuses none.
	MonitorQueue string

	MaxInFlight int           // concurrent sends, a batch counts as one; others wait. 0 = 1024
	MaxBodySize int64         // bytes of one request's body; 0 = 1 MiB
	SendTimeout time.Duration // of one send with its retries; also bounds the wait for a place. 0 = 30 s

	// AMQP configures the relay of the AMQP endpoint. Its MaxConns holds for both endpoints
	// together. New sets Refuse, Watch, Observe and, if there are Keys, Admit; a nil ErrorLog writes
	// to Log.
	AMQP relay.Config
	// Upstream takes the requests of the REST API that are not sends, and with ClientTokens also
	// the sends.
	Upstream Upstream
	// ClientTokens: clients authenticate to the namespace themselves, so AMQP.Tokens and
	// Upstream.Authorize must be nil. Sends through the REST endpoint go on over HTTP with the
	// client's token, because Links would use the proxy's credentials.
	ClientTokens bool
	// Keys are the keys of the endpoints: each client must show a token signed with one that has
	// the right it needs. Without keys the endpoints admit everyone. Keys exclude ClientTokens.
	Keys sas.Keys
	// TLS serves clients that start TLS. nil refuses them.
	TLS *tls.Config

	Log        *zap.Logger           // nil = none
	Registerer prometheus.Registerer // nil = metrics are not registered
	Entities   []string              // monitored ones that are known from the start: their series are at 0
	Canary     string                // the queue of canaries, which no metric counts; "" = none
	Operations *operations.Counter   // nil = operations are not counted
	Slack      *slack.Meter          // nil = the slack of settlements is not measured
	Traces     *traces.Tracer        // nil = spans are not recorded
}

// Settings are the settings of one entity.
type Settings struct {
	// Unknown: the settings are not known yet, and sends wait for them. The other fields are
	// meaningless then.
	Unknown bool
	// Monitored is false for an entity whose messages pass through untouched.
	Monitored bool
	// Deadline applies to messages that state no deadline and have no TTL; 0 = none.
	Deadline time.Duration
	// CompleteWithin is the time in which a message must be settled for good after it was
	// enqueued, unless it states one itself; 0 = no bound.
	CompleteWithin time.Duration
	// WarnBefore has the times before a deadline at which the monitor sends a reminder.
	WarnBefore []time.Duration
	// DefaultMessageTimeToLive is the entity's setting on the broker: it caps the TTL of every
	// message. 0 = unlimited.
	DefaultMessageTimeToLive time.Duration
	// SubscriptionTimeToLive is the shortest default among the subscriptions of a topic: the
	// first deadline is that of the copy that expires first. 0 = unlimited.
	SubscriptionTimeToLive time.Duration
	// StampTTL shortens the TTL of a message to its deadline, so that the broker does not deliver
	// it late even while no monitor runs.
	StampTTL bool
	// Findable: the broker dead-letters expired messages there by itself, and numbers messages in
	// the order in which it enqueues them. It is true of a queue without sessions and partitions
	// that dead-letters on expiry and does not forward.
	Findable bool
	// MaxMessageSize bounds the body of a message, in bytes; 0 = what the broker allows.
	MaxMessageSize int64
}

func (p *Proxy) excluded(entity string) bool { return p.cfg.Excluded != nil && p.cfg.Excluded(entity) }

// passes reports that messages certainly pass untouched.
func (s *Settings) passes() bool { return !s.Monitored && !s.Unknown }

const (
	defaultMaxInFlight = 1024
	defaultMaxBodySize = 1 << 20
	defaultSendTimeout = 30 * time.Second
	// bodyBudget bounds the bytes of all request bodies held at once, so that slow or large
	// uploads wait instead of using memory.
	bodyBudget = 64 << 20
	// maxRelayed bounds the requests that are relayed at once; most of them wait for a message.
	// Service Bus allows 5,000 concurrent receives on an entity.
	maxRelayed = 5000
)

// A Proxy sends messages to Service Bus and schedules their companions. It is safe for concurrent
// use.
type Proxy struct {
	cfg     Config
	metrics *metrics
	sends   inFlight
	bodies  *rest.Bodies
	known   atomic.Pointer[sas.Keys] // see SetKeys
	behind  *relay.Relay             // the AMQP endpoint
	port    *listener.Server

	upstream *rest.Transport // to the namespace's REST API
	relays   chan struct{}   // one per relayed request
	proven   proven.Tokens   // of clients
	waits    context.Context // ends when Shutdown ends the waits for messages
	endWaits context.CancelFunc

	// companionFirst is set while the latest write to the monitor queue failed. Companions then
	// go before work messages instead of together with them. Otherwise every refused attempt of
	// an app that retries would leave one more work message.
	companionFirst atomic.Bool
}

// New returns a Proxy. The first send to an entity opens the link.
func New(cfg Config) (*Proxy, error) {
	switch {
	case cfg.Links == nil:
		return nil, errors.New("proxy: links to the namespace are needed")
	case cfg.Scheduler == nil:
		return nil, errors.New("proxy: a scheduler is needed")
	case cfg.AMQP.Dial == nil, cfg.Upstream.Dial == nil:
		return nil, errors.New("proxy: ways to the namespace's AMQP and HTTP endpoints are needed")
	case cfg.MaxInFlight < 0, cfg.MaxBodySize < 0, cfg.SendTimeout < 0:
		return nil, errors.New("proxy: a bound is negative")
	case cfg.ClientTokens && (cfg.AMQP.Tokens != nil || cfg.Upstream.Authorize != nil || len(cfg.Keys) > 0):
		return nil, errors.New("proxy: the tokens of clients are judged by the namespace or here, not both")
	}
	if cfg.Settings == nil {
		cfg.Settings = func(string) Settings { return Settings{Monitored: true, StampTTL: true} }
	}
	if cfg.Learn == nil {
		cfg.Learn = func(_ context.Context, entity string) (Settings, error) { return cfg.Settings(entity), nil }
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
	p := &Proxy{
		cfg: cfg,
		sends: inFlight{
			places:  make(chan struct{}, cfg.MaxInFlight),
			timeout: cfg.SendTimeout,
		},
		bodies:   rest.NewBodies(bodyBudget),
		upstream: rest.NewTransport(cfg.Upstream.Dial),
		relays:   make(chan struct{}, maxRelayed),
	}
	var err error
	p.metrics, err = newMetrics(cfg.Registerer, cfg.Canary, func() int { return len(p.sends.places) }, p.sends.queued.Load)
	if err != nil {
		return nil, fmt.Errorf("proxy: register metrics: %w", err)
	}
	for _, name := range cfg.Entities {
		p.metrics.show(name, endpointAMQP)
		p.metrics.show(name, endpointREST)
	}
	p.known.Store(&cfg.Keys)
	p.waits, p.endWaits = context.WithCancel(context.Background())
	p.behind = p.newRelay()
	p.port = p.newPort()
	return p, nil
}

// noteCompanions records whether the last companions failed. If so, the next sends write theirs
// first.
func (p *Proxy) noteCompanions(err error) {
	if first := err != nil; p.companionFirst.Load() != first { // avoids a write: it rarely changes
		p.companionFirst.Store(first)
	}
}

// Close does what Shutdown does, closes the AMQP connections, refuses new sends and waits for those
// in flight. The links and the scheduler stay open: they belong to the caller.
func (p *Proxy) Close(ctx context.Context) error {
	defer p.port.Close() // closes idle connections; the errors of the endpoints come from the calls below
	// The relay waits until the broker has settled the sends. Then it closes the connections, with a
	// condition after which SDKs reconnect.
	endpointErr := errors.Join(p.Shutdown(ctx), p.behind.Shutdown(ctx))
	if err := p.sends.close(ctx); err != nil {
		return err
	}
	return endpointErr
}
