// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"slices"

	"overdue/internal/broker/queue"
)

// ErrDamaged says that the entities on a disk cannot be read, or do not fit together.
var ErrDamaged = errors.New("broker: the entities on disk are damaged")

// begin makes the namespaces as they are on disk, and what is missing of the configuration.
func (b *Broker) begin() error {
	if b.disk.durable() {
		if err := tryConfiguration(b.cfg); err != nil {
			return err
		}
		if err := b.load(); err != nil {
			return err
		}
	}
	b.makeNamespaces()
	for _, n := range b.Namespaces() {
		if n.name != "" && !b.canName(n.name) {
			b.differences = append(b.differences, n.entities.sentence("it is on disk, but clients cannot name it; its entities stay"))
			n.entities.start()
			continue
		}
		if err := n.entities.setUp(); err != nil {
			return err
		}
		b.differences = append(b.differences, n.entities.differences...)
		n.entities.differences = nil
	}
	return nil
}

// tryConfiguration finds what is wrong with a configuration before any of it is made.
func tryConfiguration(cfg Config) error {
	cfg.Disk = nil
	trial, err := New(cfg)
	if err != nil {
		return err
	}
	return trial.Close()
}

// load makes the entities of the disk, and their queues as they were. It reads everything before
// any queue goes on, because that is written.
func (b *Broker) load() error {
	var topics, subscriptions []stored
	highest, err := b.cfg.Disk.Entities(func(number uint32, text []byte) error {
		d, err := readDescription(text)
		switch {
		case err != nil:
			return fmt.Errorf("%w: number %d: %w", ErrDamaged, number, err)
		case d.Subscription != nil:
			subscriptions = append(subscriptions, stored{number, d})
		default:
			topics = append(topics, stored{number, d})
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.numbers.Store(highest)
	var resume []func() error
	for _, s := range slices.Concat(topics, subscriptions) {
		e, err := b.place(&s)
		if err != nil {
			return fmt.Errorf("%w: number %d: %w", ErrDamaged, s.number, err)
		}
		last, err := b.cfg.Disk.Load(s.number, func(c *queue.Change) error { e.queue.Restore(c); return nil })
		if err != nil {
			return err
		}
		resume = append(resume, func() error { return e.queue.Resume(last) })
	}
	for _, f := range resume {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// stored is an entity as it was found on disk.
type stored struct {
	number uint32
	description
}

// place makes an entity of the disk. Nothing moves in it yet.
func (b *Broker) place(s *stored) (*Entity, error) {
	n := b.spaces[key(s.Namespace)]
	if n == nil {
		n = newNamespace(b, s.Namespace)
		b.spaces[key(s.Namespace)] = n
	}
	es := &n.entities
	es.mu.Lock()
	defer es.mu.Unlock()
	kind, path, settings := s.parts()
	var topic *Entity
	var rules []*rule
	if kind == KindSubscription {
		topic = es.byKey[key(s.Subscription.Topic)]
		if topic == nil || topic.kind != KindTopic {
			return nil, fmt.Errorf("%s has no topic", path)
		}
		for _, info := range s.Subscription.Rules {
			r, err := newRule(info.Config, info.CreatedAt)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			rules = append(rules, r)
		}
	}
	if es.byKey[key(path)] != nil {
		return nil, fmt.Errorf("there are two of the name %s", path)
	}
	e := es.newEntity(s.number, kind, path, topic, settings)
	e.created = s.Created
	e.updated.Store(s.Updated.UnixNano())
	e.rules.set(rules)
	es.placeLocked(e)
	if es.loaded == nil {
		es.loaded = make(map[*Entity]bool)
	}
	es.loaded[e] = true
	return e, nil
}

// loadedLocked returns an entity of the disk that the configuration names for the first time. Under
// a name that it has twice, the second is an entity that exists.
func (es *entities) loadedLocked(path string) *Entity {
	e := es.byKey[key(path)]
	if !es.loaded[e] {
		return nil
	}
	delete(es.loaded, e)
	return e
}

// start makes entities that were loaded move their messages.
func (es *entities) start() {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.startLocked()
}

func (es *entities) startLocked() {
	es.loaded = nil
	for _, e := range es.byKey { // a target may stand behind what forwards to it
		e.setMoversLocked()
		e.idle.watch()
	}
}
