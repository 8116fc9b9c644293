// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// remove deletes an entity, and with a topic its subscriptions. It reports false
// when the entity is gone already.
func (es *entities) remove(e *Entity) bool {
	es.mu.Lock()
	if es.goneLocked(e) {
		es.mu.Unlock()
		return false
	}
	gone := append([]*Entity{e}, e.subscriptions()...)
	for _, g := range gone {
		delete(es.byKey, key(g.path))
	}
	if e.topic != nil {
		e.topic.setSubscriptions(slices.DeleteFunc(slices.Clone(e.topic.subscriptions()), func(s *Entity) bool { return s == e }))
	} else {
		es.roots--
	}
	es.changes.Add(1)
	es.mu.Unlock()
	closeAll(gone)
	return true
}

// closeAll closes entities that have been taken out of the namespace.
func closeAll(gone []*Entity) {
	for _, g := range gone {
		g.close(errDeleted(g.path))
	}
}

// delete is remove by name.
func (es *entities) delete(kind Kind, path string) error {
	e, err := es.findKind(kind, path)
	if err != nil {
		return err
	}
	if !es.remove(e) {
		return fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
	}
	return nil
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
	changed, err := es.apply(e, change)
	if err != nil {
		return nil, err
	}
	if changed {
		e.partLinks()
	}
	return e, nil
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
	e.settings.Store(&s)
	es.changes.Add(1)
	e.updated.Store(es.ns.Now().UnixNano())
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
