// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"overdue/internal/amqp"
)

// remove deletes an entity, and with a topic its subscriptions. It reports false
// when the entity is gone already.
func (es *entities) remove(e *Entity) bool {
	release := es.ns.b.disk.hold() // before the mutex, as everywhere
	gone := es.take(e)
	drop(gone)
	release()
	es.closeLinks(gone)
	return len(gone) > 0
}

// take takes an entity out of the namespace, and with a topic its subscriptions. It returns none if
// the entity is gone already.
func (es *entities) take(e *Entity) (gone []*Entity) {
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.goneLocked(e) {
		return nil
	}
	gone = append([]*Entity{e}, e.subscriptions()...)
	for _, g := range gone {
		delete(es.byKey, key(g.path))
	}
	if e.topic != nil {
		others := slices.DeleteFunc(slices.Clone(e.topic.subscriptions()), func(s *Entity) bool { return s == e })
		e.topic.subs.Store(&others)
	} else {
		es.roots--
	}
	es.changes.Add(1)
	return gone
}

// drop closes entities that have been taken out of the namespace, and makes the disk forget them.
// The caller has held the disk since before they were taken out. Otherwise a crash could leave a
// part of them, or beside them an entity that was made meanwhile under the same name.
func drop(gone []*Entity) {
	for _, e := range gone {
		e.close()
		if e.number != 0 {
			e.ns.b.cfg.Disk.Drop(e.number)
		}
	}
}

// closeLinks lets the clients of entities know that they are deleted, once that is on disk.
func (es *entities) closeLinks(gone []*Entity) {
	es.ns.b.disk.after(func(*amqp.Error) {
		for _, e := range gone {
			e.closeLinks(errDeleted(e.path))
		}
	})
}

// delete is remove by name.
func (es *entities) delete(kind Kind, path string) error {
	e, err := es.findKind(kind, path)
	if err != nil {
		return err
	}
	return es.ns.b.disk.durably(func() error {
		if !es.remove(e) {
			return fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
		}
		return nil
	})
}

// update gives an entity new settings, and lets go of its links: the service
// does, and its clients connect again. An update that changes nothing detaches
// nobody. The live test TestSessionReceiver_Detach of the Go SDK updates a queue
// twice alike, and only the first of them costs it its link.
func (es *entities) update(kind Kind, path string, change func(*settings) error) (*Entity, error) {
	e, err := es.findKind(kind, path)
	if err != nil {
		return nil, err
	}
	return e, es.ns.b.disk.durably(func() error {
		changed, err := es.apply(e, change)
		if err == nil && changed {
			es.ns.b.disk.after(func(*amqp.Error) { e.partLinks() })
		}
		return err
	})
}

// apply gives an entity new settings and makes everything go by them. All of it
// happens in one step: of two updates the later one holds, and what is deleted
// meanwhile starts nothing again.
func (es *entities) apply(e *Entity, change func(*settings) error) (changed bool, err error) {
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.goneLocked(e) {
		return false, fmt.Errorf("%w: %.300s", ErrEntityNotFound, e.path)
	}
	was := e.settings.Load()
	s := *was
	if err := change(&s); err != nil {
		return false, err
	}
	now := es.ns.Now()
	if err := e.keep(&s, e.rules.now(), now); err != nil {
		return false, err
	}
	e.settings.Store(&s)
	es.changes.Add(1)
	e.updated.Store(now.UnixNano())
	var errs []error
	for _, c := range append([]*Entity{e}, e.subscriptions()...) { // a topic's time to live is its subscriptions', too
		errs = append(errs, c.queue.Update(c.engine()))
	}
	if e.topic == nil {
		e.quota.SetLimit(e.maxSize())
	}
	e.setMoversLocked()
	e.idle.watch()
	return !reflect.DeepEqual(was.withoutKept(), s.withoutKept()), errors.Join(errs...)
}

// withoutKept is what a link can observe of the settings.
func (s settings) withoutKept() settings {
	s.queue.Kept, s.topic.Kept, s.subscription.Kept = Kept{}, Kept{}, Kept{}
	return s
}
