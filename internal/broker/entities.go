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

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// entities is the entities of a namespace under their paths.
type entities struct {
	ns *Namespace

	// nothing stands in for a queue that AutoCreate would make but that nobody
	// has written to: whatever is asked of it, the answer is right.
	nothing *Entity

	changes atomic.Uint64 // grows under mu, after the change

	mu     sync.RWMutex
	closed error              // why nothing can be made any more
	roots  int                // queues and topics
	byKey  map[string]*Entity // by key(path), subscriptions included
	loaded map[*Entity]bool   // while setUpLocked is at work: those that are there and that it has not come to yet

	differences []string // from the configuration, a sentence each
}

func (es *entities) find(path string) *Entity {
	es.mu.RLock()
	defer es.mu.RUnlock()
	return es.byKey[key(path)]
}

// findKind is find for one kind of entity.
func (es *entities) findKind(kind Kind, path string) (*Entity, error) {
	if e := es.find(path); e != nil && e.kind == kind {
		return e, nil
	}
	return nil, fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
}

// open returns the entity of that path for a client that is about to use it,
// and creates it where AutoCreate says so.
func (es *entities) open(path string) (*Entity, *amqp.Error) { return es.openFor(path, nil) }

// openFor is open for messages of source, which opens nothing once it is deleted. After a Reset the
// same names are other entities, and messages that are still under way must not turn up there.
func (es *entities) openFor(path string, source *Entity) (*Entity, *amqp.Error) {
	es.mu.RLock()
	e, gone := es.byKey[key(path)], es.goneLocked(source)
	es.mu.RUnlock()
	switch {
	case gone:
		return nil, notFound(es.ns.host.url(source.path))
	case e != nil:
		return e, nil
	}
	e, err := es.create(path, source)
	switch {
	case errors.Is(err, ErrEntityNotFound):
		return nil, notFound(es.ns.host.url(path))
	case err != nil:
		return nil, amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The messaging entity '%.260s' could not be created: %v.", path, err)
	}
	return e, nil
}

// lookup is open for a client that only asks: nothing is created.
func (es *entities) lookup(path string) (*Entity, *amqp.Error) {
	if e := es.find(path); e != nil {
		return e, nil
	}
	if !es.ns.b.cfg.AutoCreate || !validName(path) {
		return nil, notFound(es.ns.host.url(path))
	}
	return es.nothing, nil
}

// goneLocked: e, which may be nil, is no longer in the namespace.
func (es *entities) goneLocked(e *Entity) bool { return e != nil && es.byKey[key(e.path)] != e }

// create makes a queue on demand, if that is wanted. See openFor for source.
func (es *entities) create(path string, source *Entity) (*Entity, error) {
	if !es.ns.b.cfg.AutoCreate || !validName(path) {
		return nil, fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.goneLocked(source) {
		return nil, fmt.Errorf("%w: %.300s", ErrEntityNotFound, source.path)
	}
	if e := es.byKey[key(path)]; e != nil {
		return e, nil // somebody was faster
	}
	cfg := es.ns.b.cfg.AutoCreateConfig
	cfg.Name = path
	return es.addLocked(KindQueue, path, nil, settings{queue: cfg.withDefaults()}, nil)
}

// addLocked makes an entity; rules are for a subscription. Settings and rules have been checked.
func (es *entities) addLocked(kind Kind, path string, topic *Entity, s settings, rules []*rule) (*Entity, error) {
	switch {
	case es.closed != nil:
		return nil, es.closed
	case es.byKey[key(path)] != nil:
		return nil, fmt.Errorf("%w: %.300s", ErrEntityExists, path)
	case topic == nil && es.roots >= es.ns.b.cfg.MaxEntities:
		return nil, fmt.Errorf("%w: %d queues and topics", ErrTooManyEntities, es.roots)
	case topic != nil && len(topic.subscriptions()) >= MaxSubscriptions:
		return nil, fmt.Errorf("%w: %d subscriptions of topic %.300s", ErrTooManyEntities, MaxSubscriptions, topic.path)
	}
	number := uint32(0)
	if es.ns.b.disk.durable() {
		number = es.ns.b.numbers.Add(1)
	}
	e := es.newEntity(number, kind, path, topic, s)
	e.rules.set(rules)
	if err := e.keep(&s, rules, e.created); err != nil {
		return nil, err
	}
	es.placeLocked(e)
	e.setMoversLocked()
	e.idle.watch()
	return e, nil
}

// placeLocked puts an entity where it is found. The last step makes the topic of a subscription
// send to it.
func (es *entities) placeLocked(e *Entity) {
	es.byKey[key(e.path)] = e
	if e.topic == nil {
		es.roots++
	} else {
		subs := append(slices.Clone(e.topic.subscriptions()), e)
		slices.SortFunc(subs, func(a, b *Entity) int { return cmp.Compare(key(a.path), key(b.path)) })
		e.topic.subs.Store(&subs)
	}
	es.changes.Add(1)
}

func (es *entities) newEntity(number uint32, kind Kind, path string, topic *Entity, s settings) *Entity {
	now := es.ns.Now()
	e := &Entity{
		ns:         es.ns,
		number:     number,
		kind:       kind,
		path:       path,
		topic:      topic,
		activities: &activities{},
	}
	if path != "" {
		e.activities = es.ns.b.counted.of(kind, path)
	}
	e.created = now.UTC()
	e.idle.entity, e.idle.since = e, now
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

// createNamed makes an entity for somebody who asks for it, and returns when it is on disk.
func (es *entities) createNamed(create func() (*Entity, error)) (e *Entity, err error) {
	err = es.ns.b.disk.durably(func() error {
		es.mu.Lock()
		defer es.mu.Unlock()
		e, err = create()
		return err
	})
	return e, err
}

// all returns the entities of one kind, sorted by path.
func (es *entities) all(kind Kind) []*Entity {
	es.mu.RLock()
	defer es.mu.RUnlock()
	var found []*Entity
	for _, e := range es.byKey {
		if e.kind == kind {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *Entity) int { return cmp.Compare(key(a.path), key(b.path)) })
	return found
}

// setUpLocked makes entities of the configuration. Those that are there stay as they are.
func (es *entities) setUpLocked(s NamespaceSetup) error {
	var errs []error
	for _, q := range s.Queues {
		errs = append(errs, es.setUpQueueLocked(q))
	}
	for _, t := range s.Topics {
		errs = append(errs, es.setUpTopicLocked(t))
	}
	return errors.Join(errs...)
}

// beginLocked makes the entities of the configuration in a namespace that has none but those of the
// disk.
func (es *entities) beginLocked() error {
	err := es.setUpLocked(es.ns.b.setups.Load().of(es.ns.name))
	es.startLocked()
	return err
}

// clearLocked takes every entity out of the namespace. Their end has to follow, see drop and close.
func (es *entities) clearLocked() (gone []*Entity) {
	gone = slices.Collect(maps.Values(es.byKey))
	clear(es.byKey)
	es.roots = 0
	es.changes.Add(1)
	return gone
}

func (es *entities) setUp() error {
	es.mu.Lock()
	defer es.mu.Unlock()
	return es.beginLocked()
}

// close ends every entity. The disk keeps them.
func (es *entities) close() {
	es.mu.Lock()
	es.closed = ErrClosed
	gone := es.clearLocked()
	es.mu.Unlock()
	for _, e := range gone {
		e.close()
		e.closeLinks(errDeleted(e.path))
	}
	es.nothing.close()
}

// wake makes every entity look at the clock.
func (es *entities) wake() {
	es.mu.RLock()
	all := slices.Collect(maps.Values(es.byKey))
	es.mu.RUnlock()
	for _, e := range all {
		e.queue.Wake()
		e.idle.check()
	}
}
