// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqpserver"
	"overdue/internal/queue"
)

var (
	// ErrQueueExists is returned by AddQueue for a name that is taken.
	ErrQueueExists = errors.New("broker: queue exists")
	// ErrTooManyQueues is returned by AddQueue when Config.MaxQueues is reached.
	ErrTooManyQueues = errors.New("broker: too many queues")
	// ErrClosed is returned by AddQueue after Shutdown or Close.
	ErrClosed = errors.New("broker: closed")
)

// A Broker is one Service Bus namespace, in memory. Its methods are safe for
// concurrent use.
type Broker struct {
	cfg    Config
	server *amqpserver.Server
	offset atomic.Int64   // broker's clock minus the machine's, in nanoseconds
	links  sync.WaitGroup // goroutines of receiving links

	// nothing stands in for a queue that AutoCreate would make but that nobody
	// has written to: whatever is asked of it, the answer is right.
	nothing *entity

	mu       sync.RWMutex
	closed   bool
	entities map[string]*entity // by key(name)
}

// An entity is one queue under its name. Immutable.
type entity struct {
	cfg   QueueConfig // defaults filled in
	queue *queue.Queue
}

// New returns a broker with the configured queues. The error names everything
// that is wrong with cfg.
func New(cfg Config) (*Broker, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg.withDefaults(), entities: make(map[string]*entity)}
	b.offset.Store(int64(cfg.ClockOffset))
	b.nothing = b.newEntity(QueueConfig{})
	var errs []error
	for _, qc := range cfg.Queues {
		errs = append(errs, b.AddQueue(qc))
	}
	if err := errors.Join(errs...); err != nil {
		b.closeQueues()
		return nil, err
	}
	b.server = amqpserver.New(amqpserver.Config{
		Handler: handler{b},
		// The order of the service; .NET wants the first, everyone else takes
		// ANONYMOUS. Who a client is, it says on $cbs.
		Mechanisms:     []amqp.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"},
		SASLWelcome:    "Welcome!",
		MaxMessageSize: b.cfg.MaxMessageSize,
		ErrorLog:       cfg.ErrorLog,
		Trace:          cfg.Trace,
	})
	return b, nil
}

// Serve accepts connections until the broker or ln is closed. It returns
// amqpserver.ErrServerClosed after Shutdown or Close.
func (b *Broker) Serve(ln net.Listener) error { return b.server.Serve(ln) }

// ServeConn serves one connection and returns when it has ended.
func (b *Broker) ServeConn(c net.Conn) error { return b.server.ServeConn(c) }

// Shutdown stops accepting, closes the connections and waits until they are
// gone or ctx ends; what is left then is cut. The messages are lost.
func (b *Broker) Shutdown(ctx context.Context) error {
	err := b.server.Shutdown(ctx)
	return errors.Join(err, b.Close())
}

// Close cuts every connection and frees the queues.
func (b *Broker) Close() error {
	err := b.server.Close()
	b.links.Wait()
	b.closeQueues()
	return err
}

func (b *Broker) closeQueues() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, e := range b.entities {
		e.queue.Close()
	}
	b.nothing.queue.Close()
}

// Now returns the time by the broker's clock.
func (b *Broker) Now() time.Time { return time.Now().Add(time.Duration(b.offset.Load())) }

// SetClockOffset makes the broker's clock step, to test skew and to travel in
// time: whatever becomes due by it happens at once.
func (b *Broker) SetClockOffset(d time.Duration) {
	b.offset.Store(int64(d))
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, e := range b.entities {
		e.queue.Wake()
		e.queue.DeadLetterQueue().Wake()
	}
}

// AddQueue creates a queue. It fails for a bad configuration, for a name that
// is taken (ErrQueueExists), with ErrTooManyQueues and with ErrClosed.
func (b *Broker) AddQueue(cfg QueueConfig) error {
	if err := cfg.check(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.entities[key(cfg.Name)]; taken {
		return fmt.Errorf("%w: %s", ErrQueueExists, cfg.Name)
	}
	_, err := b.addLocked(cfg)
	return err
}

func (b *Broker) addLocked(cfg QueueConfig) (*entity, error) {
	switch {
	case b.closed:
		return nil, ErrClosed
	case len(b.entities) >= b.cfg.MaxQueues:
		return nil, fmt.Errorf("%w: %d", ErrTooManyQueues, b.cfg.MaxQueues)
	}
	e := b.newEntity(cfg)
	b.entities[key(cfg.Name)] = e
	return e, nil
}

func (b *Broker) newEntity(cfg QueueConfig) *entity {
	cfg = cfg.withDefaults()
	return &entity{cfg: cfg, queue: queue.New(queue.Config{
		Name:                             cfg.Name,
		LockDuration:                     cfg.LockDuration,
		MaxDeliveryCount:                 cfg.MaxDeliveryCount,
		DefaultMessageTimeToLive:         cfg.DefaultMessageTimeToLive,
		DeadLetteringOnMessageExpiration: cfg.DeadLetteringOnMessageExpiration,
		Expiry:                           b.cfg.Expiry,
		MaxSize:                          cfg.MaxSize,
		Now:                              b.Now,
	})}
}

// Queue returns the queue of that name, compared without case: for tests, the
// demo and settings, which look behind the protocol.
func (b *Broker) Queue(name string) (*queue.Queue, bool) {
	if e := b.entity(name); e != nil {
		return e.queue, true
	}
	return nil, false
}

// QueueConfig returns how the queue of that name is set up, defaults filled in.
func (b *Broker) QueueConfig(name string) (QueueConfig, bool) {
	if e := b.entity(name); e != nil {
		return e.cfg, true
	}
	return QueueConfig{}, false
}

// QueueNames returns the names of all queues, sorted.
func (b *Broker) QueueNames() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	names := make([]string, 0, len(b.entities))
	for _, e := range b.entities {
		names = append(names, e.cfg.Name)
	}
	slices.Sort(names)
	return names
}

func (b *Broker) entity(name string) *entity {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.entities[key(name)]
}

// open returns the entity of that name for a client that is about to use it,
// and creates it where AutoCreate says so.
func (b *Broker) open(name string) (*entity, *amqp.Error) {
	if e := b.entity(name); e != nil {
		return e, nil
	}
	if !b.cfg.AutoCreate || !validName(name) {
		return nil, notFound(name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entities[key(name)]; e != nil {
		return e, nil // somebody was faster
	}
	cfg := b.cfg.AutoCreateConfig
	cfg.Name = name
	e, err := b.addLocked(cfg)
	if err != nil {
		return nil, amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The messaging entity '%.260s' could not be created: %v.", name, err)
	}
	return e, nil
}

// look is open for a client that only asks: nothing is created.
func (b *Broker) look(name string) (*entity, *amqp.Error) {
	if e := b.entity(name); e != nil {
		return e, nil
	}
	if !b.cfg.AutoCreate || !validName(name) {
		return nil, notFound(name)
	}
	return b.nothing, nil
}

// node returns the queue that an address of e means.
func (e *entity) node(deadLetter bool) *queue.Queue {
	if deadLetter {
		return e.queue.DeadLetterQueue()
	}
	return e.queue
}
