// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/duration"
)

var (
	// ErrEntityExists is returned where an entity or a rule is made under a name
	// that is taken.
	ErrEntityExists = errors.New("broker: entity exists")
	// ErrEntityNotFound is returned where an entity or a rule that is named does
	// not exist.
	ErrEntityNotFound = errors.New("broker: entity not found")
	// ErrInvalidConfig is wrapped by everything that is wrong with how an entity
	// is to be set up.
	ErrInvalidConfig = errors.New("broker: invalid configuration")
	// ErrTooManyEntities is returned when a namespace, a topic or a subscription
	// is full.
	ErrTooManyEntities = errors.New("broker: too many entities")
	// ErrClosed is returned after Shutdown or Close.
	ErrClosed = errors.New("broker: closed")
)

// A Namespace is a set of entities under their names, which are compared without
// case. Its methods are safe for concurrent use.
type Namespace struct {
	b    *Broker
	name string
	host atomic.Pointer[string] // that clients have opened last to reach it

	// nothing stands in for a queue that AutoCreate would make but that nobody
	// has written to: whatever is asked of it, the answer is right.
	nothing *Entity

	faults faults
	offset atomic.Int64 // of its clock against the broker's, in nanoseconds

	changes atomic.Uint64 // of entities; grows under mu, after the change

	mu       sync.RWMutex
	closed   error              // why nothing can be made any more
	roots    int                // queues and topics
	entities map[string]*Entity // by key(path), subscriptions included
}

func newNamespace(b *Broker, name string) *Namespace {
	n := &Namespace{b: b, name: name, entities: make(map[string]*Entity)}
	n.nothing = n.newEntity(KindQueue, "", nil, settings{queue: QueueConfig{}.withDefaults()})
	return n
}

// Changes grows with every entity that is made, updated or deleted. If Changes returns the same
// number before and after a caller reads entities, they are still as it read them.
func (n *Namespace) Changes() uint64 { return n.changes.Load() }

// Name is what clients call the namespace by; "" is the default one.
func (n *Namespace) Name() string { return n.name }

// MaxMessageSize is what a message may have in bytes where its entity does not
// say.
func (n *Namespace) MaxMessageSize() uint64 { return n.b.cfg.MaxMessageSize }

// Now returns the time by the namespace's clock.
func (n *Namespace) Now() time.Time { return n.b.Now().Add(n.ClockOffset()) }

// ClockOffset is the namespace's clock minus the broker's.
func (n *Namespace) ClockOffset() time.Duration { return time.Duration(n.offset.Load()) }

// SetClockOffset makes the clock of this namespace alone step, so that tests
// that travel in time can run side by side: whatever becomes due by it happens
// at once.
func (n *Namespace) SetClockOffset(d time.Duration) {
	n.offset.Store(int64(d))
	n.wake()
}

// Entity returns the queue, topic or subscription at path, and makes a queue
// where AutoCreate says so. Errors: ErrEntityNotFound, ErrTooManyEntities,
// ErrClosed.
func (n *Namespace) Entity(path string) (*Entity, error) {
	a := parseAddress(path)
	if e := n.find(a.Entity()); e != nil {
		return e, nil
	}
	return n.create(a.Entity(), nil)
}

func (n *Namespace) find(path string) *Entity {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.entities[key(path)]
}

// Changed returns when a queue or topic was made or last changed. ok is false where there is none.
func (n *Namespace) Changed(name string) (at time.Time, ok bool) {
	e := n.find(name)
	if e == nil || e.kind == KindSubscription {
		return at, false
	}
	_, at, _ = e.times()
	return at, true
}

// findKind is find for one kind of entity.
func (n *Namespace) findKind(kind Kind, path string) (*Entity, error) {
	if e := n.find(path); e != nil && e.kind == kind {
		return e, nil
	}
	return nil, fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
}

// open returns the entity of that path for a client that is about to use it,
// and creates it where AutoCreate says so.
func (n *Namespace) open(path string) (*Entity, *amqp.Error) { return n.openFor(path, nil) }

// openFor is open for messages of source, which opens nothing once it is deleted. After a Reset the
// same names are other entities, and messages that are still under way must not turn up there.
func (n *Namespace) openFor(path string, source *Entity) (*Entity, *amqp.Error) {
	n.mu.RLock()
	e, gone := n.entities[key(path)], n.goneLocked(source)
	n.mu.RUnlock()
	switch {
	case gone:
		return nil, notFound(n.url(source.path))
	case e != nil:
		return e, nil
	}
	e, err := n.create(path, source)
	switch {
	case errors.Is(err, ErrEntityNotFound):
		return nil, notFound(n.url(path))
	case err != nil:
		return nil, amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The messaging entity '%.260s' could not be created: %v.", path, err)
	}
	return e, nil
}

// lookup is open for a client that only asks: nothing is created.
func (n *Namespace) lookup(path string) (*Entity, *amqp.Error) {
	if e := n.find(path); e != nil {
		return e, nil
	}
	if !n.b.cfg.AutoCreate || !validName(path) {
		return nil, notFound(n.url(path))
	}
	return n.nothing, nil
}

// goneLocked: e, which may be nil, is no longer in the namespace.
func (n *Namespace) goneLocked(e *Entity) bool { return e != nil && n.entities[key(e.path)] != e }

// create makes a queue on demand, if that is wanted. See openFor for source.
func (n *Namespace) create(path string, source *Entity) (*Entity, error) {
	if !n.b.cfg.AutoCreate || !validName(path) {
		return nil, fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.goneLocked(source) {
		return nil, fmt.Errorf("%w: %.300s", ErrEntityNotFound, source.path)
	}
	if e := n.entities[key(path)]; e != nil {
		return e, nil // somebody was faster
	}
	cfg := n.b.cfg.AutoCreateConfig
	cfg.Name = path
	return n.addLocked(KindQueue, path, nil, settings{queue: cfg.withDefaults()})
}

// addLocked makes an entity. The settings have been checked.
func (n *Namespace) addLocked(kind Kind, path string, topic *Entity, s settings) (*Entity, error) {
	switch {
	case n.closed != nil:
		return nil, n.closed
	case n.entities[key(path)] != nil:
		return nil, fmt.Errorf("%w: %.300s", ErrEntityExists, path)
	case topic == nil && n.roots >= n.b.cfg.MaxEntities:
		return nil, fmt.Errorf("%w: %d queues and topics", ErrTooManyEntities, n.roots)
	case topic != nil && len(topic.subscriptions()) >= MaxSubscriptions:
		return nil, fmt.Errorf("%w: %d subscriptions of topic %.300s", ErrTooManyEntities, MaxSubscriptions, topic.path)
	}
	e := n.newEntity(kind, path, topic, s)
	n.entities[key(path)] = e
	if topic == nil {
		n.roots++
	}
	n.changes.Add(1)
	e.setMoversLocked()
	e.watchIdle()
	return e, nil
}

func (n *Namespace) newEntity(kind Kind, path string, topic *Entity, s settings) *Entity {
	now := n.Now()
	e := &Entity{ns: n, kind: kind, path: path, topic: topic, created: now.UTC()}
	e.settings.Store(&s)
	e.updated.Store(now.UnixNano())
	if topic != nil {
		e.quota = topic.quota
	} else {
		e.quota = queue.NewQuota(e.maxSize())
	}
	e.queue = queue.New(e.engine())
	return e
}

// all returns the entities of one kind, sorted by path.
func (n *Namespace) all(kind Kind) []*Entity {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var es []*Entity
	for _, e := range n.entities {
		if e.kind == kind {
			es = append(es, e)
		}
	}
	slices.SortFunc(es, func(a, b *Entity) int { return cmp.Compare(key(a.path), key(b.path)) })
	return es
}

// setUpLocked makes the entities of the configuration.
func (n *Namespace) setUpLocked() error {
	var errs []error
	for _, q := range n.b.cfg.Queues {
		_, err := n.createQueueLocked(q)
		errs = append(errs, err)
	}
	for _, t := range n.b.cfg.Topics {
		errs = append(errs, n.setUpTopicLocked(t))
	}
	for _, e := range n.entities { // a target may stand behind what forwards to it
		e.setMoversLocked()
	}
	return errors.Join(errs...)
}

// clearLocked takes every entity out of the namespace. closeAll has to follow.
func (n *Namespace) clearLocked() (gone []*Entity) {
	gone = slices.Collect(maps.Values(n.entities))
	clear(n.entities)
	n.roots = 0
	n.changes.Add(1)
	return gone
}

// setUp is setUpLocked for a namespace that is empty.
func (n *Namespace) setUp() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.setUpLocked()
}

// close deletes every entity, for good.
func (n *Namespace) close() {
	n.mu.Lock()
	n.closed = ErrClosed
	gone := n.clearLocked()
	n.mu.Unlock()
	closeAll(gone)
	n.nothing.close(nil)
}

// wake makes every entity look at the clock.
func (n *Namespace) wake() {
	n.mu.RLock()
	all := slices.Collect(maps.Values(n.entities))
	n.mu.RUnlock()
	for _, e := range all {
		e.queue.Wake()
		e.checkIdle()
	}
}

// engine is how the entity's queue behaves.
func (e *Entity) engine() queue.Config {
	s := e.settings.Load()
	cfg := queue.Config{Name: e.path, Expiry: e.ns.b.cfg.Expiry, Quirks: e.ns.b.cfg.Quirks, Now: e.ns.Now, Shared: e.quota,
		RequiresSession: e.RequiresSession()}
	switch e.kind {
	case KindQueue:
		c := &s.queue
		cfg.LockDuration, cfg.MaxDeliveryCount = c.LockDuration, c.MaxDeliveryCount
		cfg.DefaultMessageTimeToLive = c.DefaultMessageTimeToLive
		cfg.DeadLetteringOnMessageExpiration = c.DeadLetteringOnMessageExpiration
		cfg.Partitioned = c.EnablePartitioning
		cfg.RequiresDuplicateDetection = c.RequiresDuplicateDetection
		cfg.DuplicateDetectionHistoryTimeWindow = c.DuplicateDetectionHistoryTimeWindow
	case KindTopic:
		c := &s.topic
		cfg.DefaultMessageTimeToLive = c.DefaultMessageTimeToLive
		cfg.Partitioned = c.EnablePartitioning
		cfg.RequiresDuplicateDetection = c.RequiresDuplicateDetection
		cfg.DuplicateDetectionHistoryTimeWindow = c.DuplicateDetectionHistoryTimeWindow
	case KindSubscription:
		c := &s.subscription
		cfg.LockDuration, cfg.MaxDeliveryCount = c.LockDuration, c.MaxDeliveryCount
		cfg.DefaultMessageTimeToLive = duration.Shorter(c.DefaultMessageTimeToLive, e.topic.settings.Load().topic.DefaultMessageTimeToLive)
		cfg.DeadLetteringOnMessageExpiration = c.DeadLetteringOnMessageExpiration
	}
	return cfg
}

// maxSize bounds what a queue, or a topic with its subscriptions, holds.
func (e *Entity) maxSize() int64 {
	s := e.settings.Load()
	if e.kind == KindTopic {
		return s.topic.MaxSize
	}
	return s.queue.MaxSize
}
