// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/amqp/relay"
	"overdue/internal/listener"
	"overdue/internal/operations"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/sas"
	"overdue/internal/servicebus/sdk"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

// Config holds the settings of a Proxy. Client and Scheduler are needed; the zero value
// of everything else is sensible.
type Config struct {
	Client    *sdk.Client
	Scheduler *scheduler.Scheduler
	// Journal keeps the companions that the monitor queue does not take, so that their sends go
	// through. nil refuses those sends.
	Journal *journal.Journal

	// Settings says what holds for an entity, whose name is spelled as the app spells it
	// (Service Bus ignores case). It is asked at every send, from many goroutines, and must
	// not block. nil monitors every entity and stamps TTLs.
	Settings func(entity string) Settings
	// Learn is asked where Settings does not know yet, and waits until it does or somebody has
	// decided what to assume. It fails only when ctx ends before that. nil: Settings always knows.
	Learn func(ctx context.Context, entity string) (Settings, error)
	// Excluded reports that an entity is never monitored, whatever becomes of it: the AMQP
	// endpoint does not look into links to it. nil excludes none.
	Excluded func(entity string) bool

	// MonitorQueue is refused as the entity of a send: who may send work may not write
	// companions, which anybody could forge. "" refuses none.
	MonitorQueue string

	MaxInFlight int           // sends at once, a batch counts as one; more wait. 0 = 1024
	MaxBodySize int64         // bytes of one request's body; 0 = 1 MiB
	SendTimeout time.Duration // of one send, retries included; also the longest wait for a free place. 0 = 30 s

	// AMQP says where the AMQP endpoint relays to and as whom, and how much it takes; its MaxConns
	// holds for both endpoints together. Without its Dial there is no AMQP endpoint. Refuse, Watch
	// and, where there are Keys, Admit are set by New; a nil ErrorLog writes to Log.
	AMQP relay.Config
	// Upstream is where requests of the REST API go that are no sends, and sends with ClientTokens.
	Upstream Upstream
	// ClientTokens: AMQP.Tokens and Upstream.Authorize are nil on purpose. What clients prove
	// themselves with is for the namespace to judge: sends through the REST endpoint go on over
	// HTTP as they come, where the SDK's client would send as the proxy.
	ClientTokens bool
	// Keys are those of the endpoints: clients have to know one that is good for what they do.
	// None let everybody in. They exclude ClientTokens.
	Keys sas.Keys
	// TLS serves clients that begin with it. nil turns them away.
	TLS *tls.Config

	Log        *zap.Logger           // nil = none
	Registerer prometheus.Registerer // nil = metrics are kept and not registered
	Operations *operations.Counter   // nil = they are not counted
}

// Settings say what holds for one entity.
type Settings struct {
	// Unknown: what holds is not known yet, and a send has to wait for it. The other fields mean
	// nothing then.
	Unknown bool
	// Monitored is false for an entity whose messages pass through untouched.
	Monitored bool
	// Deadline applies to messages that state none and have no TTL; 0 = none.
	Deadline time.Duration
	// CompleteWithin is how long after they were enqueued messages have to be settled for good
	// that do not say so themselves; 0 = no matter how long.
	CompleteWithin time.Duration
	// WarnBefore is how long before a deadline the monitor tells that it is near, as often as it
	// has values.
	WarnBefore []time.Duration
	// DefaultMessageTimeToLive is the entity's own, as the broker has it: it caps the TTL of
	// every message. 0 = unlimited.
	DefaultMessageTimeToLive time.Duration
	// SubscriptionTimeToLive is the shortest default of the subscriptions of a topic: the copy that
	// expires first is the first deadline. 0 = unlimited.
	SubscriptionTimeToLive time.Duration
	// StampTTL puts a TTL on a message whose deadline comes before the TTL that it has, so
	// that the broker does not deliver it late even while no monitor runs.
	StampTTL bool
	// Findable says that the broker dead-letters what expires there by itself, and numbers
	// messages in the order in which it enqueues them: a queue without sessions and partitions
	// that dead-letters on expiry and forwards nothing.
	Findable bool
	// MaxMessageSize bounds the body of a message, in bytes; 0 = what the broker allows.
	MaxMessageSize int64
}

func (p *Proxy) excluded(entity string) bool { return p.cfg.Excluded != nil && p.cfg.Excluded(entity) }

// passes reports that messages pass untouched, for certain.
func (s *Settings) passes() bool { return !s.Monitored && !s.Unknown }

const (
	defaultMaxInFlight = 1024
	defaultMaxBodySize = 1 << 20
	defaultSendTimeout = 30 * time.Second
	// bodyBudget bounds the bytes of all request bodies held at once, so that many slow or
	// large uploads cost waiting and not memory.
	bodyBudget = 64 << 20
	// maxRelayed bounds the requests that are relayed at once, most of which wait for a message.
	// Service Bus takes 5,000 receives of an entity.
	maxRelayed = 5000
)

// A Proxy sends messages to Service Bus and promises their deadlines. It is safe for
// concurrent use.
type Proxy struct {
	cfg     Config
	senders *senders
	metrics *metrics
	places  chan struct{} // one per send in flight
	bodies  *rest.Bodies
	known   atomic.Pointer[sas.Keys] // see SetKeys
	behind  *relay.Relay             // the AMQP endpoint; nil = there is none
	port    *listener.Server

	upstream *rest.Transport // to the namespace, for the REST API; nil = none
	relays   chan struct{}   // one per relayed request
	proven   provenTokens    // of clients
	waits    context.Context // ends when nobody is to wait for a message any more
	endWaits context.CancelFunc

	// companionFirst is set while the last word of the monitor queue was an error. Then the
	// companion goes before the work message instead of together with it: an app that retries would
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
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("proxy: register metrics: %w", err)
	}
	p := &Proxy{
		cfg:     cfg,
		senders: newSenders(cfg.Client, cfg.Log),
		metrics: m,
		places:  make(chan struct{}, cfg.MaxInFlight),
		bodies:  rest.NewBodies(bodyBudget),
	}
	p.known.Store(&cfg.Keys)
	p.waits, p.endWaits = context.WithCancel(context.Background())
	if cfg.Upstream.Dial != nil {
		p.upstream = rest.NewTransport(cfg.Upstream.Dial)
		p.relays = make(chan struct{}, maxRelayed)
	}
	p.behind = p.newRelay()
	p.port = p.newPort()
	return p, nil
}

// enter takes a place among the sends in flight, which leave gives back. It waits for one until
// ctx ends or SendTimeout has passed, and fails with errBusy then, or with errClosed after Close.
func (p *Proxy) enter(ctx context.Context) error {
	select {
	case p.places <- struct{}{}:
	default:
		ctx, cancel := context.WithTimeout(ctx, p.cfg.SendTimeout)
		defer cancel()
		select {
		case p.places <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("proxy: %w", errBusy)
		}
	}
	return p.entered()
}

// tryEnter is enter for who cannot wait. ok is false when no place is free.
func (p *Proxy) tryEnter() (ok bool, err error) {
	select {
	case p.places <- struct{}{}:
		return true, p.entered()
	default:
		return false, nil
	}
}

// entered counts the send of whoever has just taken a place, or takes the place away again.
func (p *Proxy) entered() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		<-p.places
		return fmt.Errorf("proxy: %w", errClosed)
	}
	p.sends.Add(1)
	return nil
}

func (p *Proxy) leave() {
	<-p.places
	p.sends.Done()
}

// Close does what Shutdown does, closes the connections of the AMQP endpoint, refuses new sends,
// waits for those in flight and closes the links. The client and the scheduler stay open: they
// belong to the caller.
func (p *Proxy) Close(ctx context.Context) error {
	defer p.port.Close() // of what has nothing to lose any more; how the endpoints ended, the others say
	endpointErr := errors.Join(p.Shutdown(ctx), p.closeAMQP(ctx))
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	if err := waitFor(ctx, &p.sends); err != nil {
		return fmt.Errorf("proxy: sends still in flight: %w", err)
	}
	return errors.Join(endpointErr, p.senders.close(ctx))
}
