// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// A Broker is one or many Service Bus namespaces, in memory, behind one AMQP
// server. Its methods are safe for concurrent use. Those that name no namespace
// mean the default one.
type Broker struct {
	cfg         Config
	disk        DiskGate
	keys        atomic.Pointer[[]AuthorizationRule] // see SetKeys
	server      *server.Server
	offset      atomic.Int64   // broker's clock minus the machine's, in nanoseconds
	links       sync.WaitGroup // goroutines of receiving links and movers
	numbers     atomic.Uint32  // of entities: the latest that was given out
	differences []string       // see Differences
	watcher     func(Activity) // see Watch; nil: nobody watches
	refusals    *refusals
	counted     countedEntities
	setups      atomic.Pointer[setups]

	mu     sync.RWMutex
	closed bool
	spaces map[string]*Namespace // by key(name); "" is the default
	full   *Namespace            // stands in for those that would be too many
}

// New returns a broker with the configured queues. The error names everything
// that is wrong with cfg.
func New(cfg Config) (*Broker, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Broker{
		cfg:      cfg.withDefaults(),
		refusals: newRefusals(),
		spaces:   make(map[string]*Namespace),
	}
	b.disk.disk = cfg.Disk
	b.offset.Store(int64(cfg.ClockOffset))
	b.setups.Store(setupsOf(&cfg))
	b.keys.Store(&b.cfg.Keys)
	b.full = newNamespace(b, "")
	b.full.entities.closed = fmt.Errorf("%w: %d namespaces", ErrTooManyEntities, maxNamespaces)
	b.spaces[""] = newNamespace(b, "")
	if err := b.begin(); err != nil {
		b.closeNamespaces()
		b.links.Wait()
		return nil, err
	}
	b.server = server.New(server.Config{
		Handler: handler{b},
		// The order of the service; .NET wants the first, everyone else takes ANONYMOUS. A client says on
		// $cbs who it is, unless it takes PLAIN.
		Mechanisms:      []amqp.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"},
		SASLWelcome:     "Welcome!",
		ContainerID:     message.NewID() + "_G0", // as the service's look: 32 digits and a number
		Authenticate:    b.authenticator(),
		Tokens:          b.Secured(),
		MaxMessageSize:  b.cfg.MaxMessageSize,
		LinkIdleTimeout: cfg.LinkIdleTimeout,
		ConnIdleTimeout: cfg.ConnectionIdleTimeout,
		ErrorLog:        cfg.ErrorLog,
		Trace:           cfg.Trace,
	})
	return b, nil
}

// Differences returns how entities on disk differ from the configuration, a sentence each. New has
// found them, and left them as they are.
func (b *Broker) Differences() []string { return b.differences }

// Serve accepts connections until the broker or ln is closed. It returns
// server.ErrServerClosed after Shutdown or Close.
func (b *Broker) Serve(ln net.Listener) error { return b.server.Serve(ln) }

// ServeConn serves one connection and returns when it has ended.
func (b *Broker) ServeConn(c net.Conn) error { return b.server.ServeConn(c) }

// Shutdown stops accepting, closes the connections and waits until they are
// gone or ctx ends; what is left then is cut. Without a Disk the messages are lost.
func (b *Broker) Shutdown(ctx context.Context) error {
	err := b.server.Shutdown(ctx)
	return errors.Join(err, b.Close())
}

// Close cuts every connection and frees the entities.
func (b *Broker) Close() error {
	err := b.server.Close()
	b.closeNamespaces()
	b.links.Wait()
	return err
}

func (b *Broker) closeNamespaces() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	for _, n := range b.all() {
		n.entities.close()
	}
	b.full.entities.close()
}

// all returns the namespaces, in no order.
func (b *Broker) all() []*Namespace {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Collect(maps.Values(b.spaces))
}

// Default returns the namespace of clients that name none.
func (b *Broker) Default() *Namespace {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.spaces[""]
}

// Bounds of what clients can make by naming it.
const (
	maxNamespaces    = 10_000
	maxNamespaceName = 256 // bytes
)

// Namespace returns the namespace of that name, compared without case. With
// Config.Isolate it is made when it is first named, with the entities of the
// default one. A name that is none is that of the default one. When there are too many it is one in which nothing is and nothing
// can be made: nobody gets into another's.
func (b *Broker) Namespace(name string) *Namespace {
	name = namespaceName(name)
	if !b.canName(name) || key(name) == key(b.setups.Load().defaultName) {
		return b.Default()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.spaces[key(name)]
	if n == nil {
		if b.closed || len(b.spaces) >= maxNamespaces {
			return b.full
		}
		n = newNamespace(b, name)
		// New has made the same entities of the default namespace.
		_ = n.entities.setUp()
		b.spaces[key(name)] = n
	}
	return n
}

// Named is Namespace; ok reports whether there is one of that name, or one could be made.
func (b *Broker) Named(name string) (n *Namespace, ok bool) {
	return b.Namespace(name), b.canName(namespaceName(name))
}

// Now returns the time by the broker's clock; namespaces may be ahead of it.
func (b *Broker) Now() time.Time { return time.Now().Add(time.Duration(b.offset.Load())) }

// SetClockOffset makes the broker's clock step, to test skew and to travel in
// time: whatever becomes due by it happens at once.
func (b *Broker) SetClockOffset(d time.Duration) {
	b.offset.Store(int64(d))
	for _, n := range b.all() {
		n.entities.wake()
	}
}

// AddQueue is CreateQueue in the default namespace.
func (b *Broker) AddQueue(cfg QueueConfig) error {
	_, err := b.Default().CreateQueue(cfg)
	return err
}

// Queue returns the engine of the queue or subscription at that path: for tests,
// the demo and settings, which look behind the protocol.
func (b *Broker) Queue(path string) (*queue.Queue, bool) {
	if e := b.Default().entities.find(path); e != nil && e.kind != KindTopic {
		return e.queue, true
	}
	return nil, false
}
