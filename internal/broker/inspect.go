// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"slices"

	"overdue/internal/broker/queue"
)

// Operations on a namespace for tests and operators, which no client has.

// Entities returns all entities: queues, topics, subscriptions, each sorted by
// path.
func (n *Namespace) Entities() []*Entity {
	return slices.Concat(n.entities.all(KindQueue), n.entities.all(KindTopic), n.entities.all(KindSubscription))
}

// Held counts the messages of all namespaces, dead letters among them, but for those of the
// entities that are left out.
func (b *Broker) Held(leaveOut func(path string) bool) (messages int) {
	for _, n := range b.all() {
		for _, e := range slices.Concat(n.entities.all(KindQueue), n.entities.all(KindSubscription)) {
			if !leaveOut(e.path) {
				c := e.queue.Counts()
				messages += c.Active + c.Deferred + c.Scheduled + c.DeadLetter
			}
		}
	}
	return messages
}

// Peek returns up to most messages of the queue or subscription at path, or of
// one of its dead-letter queues ("q/$DeadLetterQueue"), from a sequence number
// upwards, and disturbs nothing. Errors: ErrEntityNotFound; see Queue.Peek.
func (n *Namespace) Peek(path string, from int64, most int) ([]queue.View, error) {
	a := parseAddress(path)
	e := n.entities.find(a.Entity())
	if e == nil {
		return nil, fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
	}
	return e.node(a).Peek(nil, from, most)
}

// Detach detaches the links of an entity, as the service does from time to time;
// clients connect again. Errors: ErrEntityNotFound.
func (n *Namespace) Detach(path string) error {
	e := n.entities.find(parseAddress(path).Entity())
	if e == nil {
		return fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
	}
	e.partLinks()
	return nil
}

// Reset makes the namespace as it was at the start. Every entity goes, with its messages, and those
// of the configuration come back. Faults are gone and its clock is the broker's again. Between the
// two there is no moment in which a client finds none of them. Errors: ErrClosed.
func (n *Namespace) Reset() error {
	n.Heal()
	n.offset.Store(0)
	return n.b.durably(func() error {
		release := n.b.hold()
		n.entities.mu.Lock()
		gone := n.entities.clearLocked()
		err := n.entities.setUpLocked()
		n.entities.mu.Unlock()
		drop(gone)
		release()
		n.entities.closeLinks(gone)
		return err
	})
}
