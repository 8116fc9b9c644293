// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
)

// Operations on a namespace for tests and operators, which no client has.

// Namespaces returns all namespaces, sorted by name.
func (b *Broker) Namespaces() []*Namespace {
	return slices.SortedFunc(slices.Values(b.all()), func(a, b *Namespace) int { return cmp.Compare(key(a.name), key(b.name)) })
}

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

// Inspect returns the queue of the queue, topic or subscription at path, or one of its dead-letter
// queues ("q/$DeadLetterQueue"), for somebody who reads behind the protocol. Errors: ErrEntityNotFound.
func (n *Namespace) Inspect(path string) (*queue.Queue, error) {
	a := parseAddress(path)
	e := n.entities.find(a.Entity())
	if e == nil {
		return nil, fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
	}
	return e.node(a), nil
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

// Purged is what a purge has removed of one entity.
type Purged struct {
	Path   string // of the entity, or of its dead-letter queue
	Kind   Kind
	Counts queue.Counts
}

// Purge removes the messages of the entity at path in every state, with the states of its sessions
// and its duplicate history. Of a topic it takes those of its subscriptions, of a dead-letter queue
// the dead letters alone, and for "" those of all entities. Entities and links stay. It returns when
// that is on disk. Errors: ErrEntityNotFound; queue.ErrNoRoom and queue.ErrNotStored, which remove nothing when
// they come at once.
func (n *Namespace) Purge(path string) (all []Purged, err error) {
	a := parseAddress(path)
	e := n.entities.find(a.Entity())
	var some []*Entity
	switch {
	case path == "": // topics first: what is on its way ends in what follows
		some = slices.Concat(n.entities.all(KindTopic), n.entities.all(KindQueue), n.entities.all(KindSubscription))
	case e == nil || a.Node != address.Messages:
		return nil, fmt.Errorf("%w: %.300s", ErrEntityNotFound, path)
	default:
		some = append(some, e)
		some = append(some, e.subscriptions()...)
	}
	err = n.b.disk.durably(func() error {
		for _, e := range some {
			all = append(all, e.purge(a))
		}
		return nil
	})
	return all, err
}

// purge removes what an address of e means. On disk that is one piece.
func (e *Entity) purge(a address.Address) Purged {
	defer e.ns.b.disk.hold()()
	p := Purged{
		Path:   e.path,
		Kind:   e.kind,
		Counts: e.node(a).Purge(),
	}
	if isDead(a) {
		p.Path += strings.TrimPrefix(a.String(), a.Entity())
		p.Counts = queue.Counts{DeadLetter: p.Counts.Active + p.Counts.Deferred, Size: p.Counts.Size}
	}
	return p
}

// Reset makes the namespace as it was at the start. Every entity goes, with its messages, and those
// of the configuration come back. Faults are gone and its clock is the broker's again. Between the
// two there is no moment in which a client finds none of them. Errors: ErrClosed.
func (n *Namespace) Reset() error {
	n.Heal()
	n.offset.Store(0)
	return n.b.disk.durably(func() error {
		release := n.b.disk.hold()
		n.entities.mu.Lock()
		gone := n.entities.clearLocked()
		err := n.entities.beginLocked()
		n.entities.mu.Unlock()
		drop(gone)
		release()
		n.entities.closeLinks(gone)
		return err
	})
}

// Setup returns the entities of the namespace as they stand, with their rules, sorted by path.
func (n *Namespace) Setup() NamespaceSetup {
	s := NamespaceSetup{Name: n.name}
	for _, q := range n.Queues() {
		s.Queues = append(s.Queues, q.Config)
	}
	for _, t := range n.entities.all(KindTopic) {
		topic := TopicSetup{TopicConfig: t.settings.Load().topic}
		for _, e := range t.subscriptions() {
			subscription := SubscriptionSetup{SubscriptionConfig: e.settings.Load().subscription}
			for _, r := range e.rules.now() {
				subscription.Rules = append(subscription.Rules, r.cfg)
			}
			topic.Subscriptions = append(topic.Subscriptions, subscription)
		}
		s.Topics = append(s.Topics, topic)
	}
	return s
}
