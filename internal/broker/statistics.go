// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/queue"
)

// Statistics is what the entities of all namespaces hold, and what clients have done since the
// start. Entities of the same name in several namespaces count as one.
type Statistics struct {
	Entities           []EntityStatistics // by path
	Senders, Receivers int                // links of clients to entities
	Refusals           map[string]uint64  // by condition
}

// EntityStatistics is Statistics of one entity. It stays when the entity is deleted.
type EntityStatistics struct {
	Path     string // OtherEntities for those beyond maxCounted
	Kind     Kind   // of the latest that had this path; those of OtherEntities count as queues
	Messages queue.Counts
	Incoming uint64 // messages that clients have sent; to a subscription they send none
	Outgoing uint64 // deliveries
	// Settled is what clients have settled, by outcome.
	Settled     [queue.Outcomes]uint64
	DeadLetters map[string]uint64 // by reason
}

// OtherEntities stands for those that have no numbers of their own. No entity can have that path.
const OtherEntities = "(other)"

// Clients name entities and conditions, so the number of those that are counted is bounded.
const (
	maxCounted    = 1000
	maxConditions = 100
)

// activities are the counters of one entity.
type activities struct {
	path     string
	kind     Kind // guarded by the mutex of countedEntities
	incoming atomic.Uint64
	outgoing atomic.Uint64
	settled  [queue.Outcomes]atomic.Uint64
	dead     queue.Tally
}

// countedEntities are the counters of all entities that there were.
type countedEntities struct {
	mu    sync.Mutex
	all   map[string]*activities // by key(path)
	other *activities            // nil: all are counted
}

// of returns the counters of an entity, which may be those of OtherEntities.
func (cs *countedEntities) of(kind Kind, path string) *activities {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.all == nil {
		cs.all = make(map[string]*activities)
	}
	a := cs.all[key(path)]
	switch {
	case a == nil && len(cs.all) < maxCounted:
		a = &activities{path: path}
		cs.all[key(path)] = a
	case a == nil:
		if cs.other == nil {
			cs.other = &activities{path: OtherEntities}
		}
		return cs.other
	}
	a.kind = kind
	return a
}

// statistics returns what was counted, by path, those of OtherEntities last.
func (cs *countedEntities) statistics(held map[*activities]queue.Counts) []EntityStatistics {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	all := make([]EntityStatistics, 0, len(cs.all)+1)
	for _, id := range slices.Sorted(maps.Keys(cs.all)) {
		all = append(all, cs.all[id].statistics(held))
	}
	if cs.other != nil {
		all = append(all, cs.other.statistics(held))
	}
	return all
}

func (a *activities) statistics(held map[*activities]queue.Counts) EntityStatistics {
	s := EntityStatistics{
		Path:        a.path,
		Kind:        a.kind,
		Messages:    held[a],
		Incoming:    a.incoming.Load(),
		Outgoing:    a.outgoing.Load(),
		DeadLetters: a.dead.Counts(),
	}
	for i := range a.settled {
		s.Settled[i] = a.settled[i].Load()
	}
	return s
}

// Statistics returns the counts of all namespaces.
func (b *Broker) Statistics() Statistics {
	s := Statistics{Refusals: b.refusals.counts()}
	held := map[*activities]queue.Counts{}
	for _, n := range b.all() {
		for _, e := range n.Entities() {
			senders, receivers := e.links.roles()
			s.Senders += senders
			s.Receivers += receivers
			sum := held[e.activities]
			sum.Add(e.queue.Counts())
			held[e.activities] = sum
		}
	}
	s.Entities = b.counted.statistics(held)
	return s
}

// roles counts links by what their clients do.
func (ls *links) roles() (senders, receivers int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.all {
		if _, sends := l.(*server.SinkLink); sends {
			senders++
		} else {
			receivers++
		}
	}
	return senders, receivers
}

// settle settles deliveries of q, which is the entity's or its dead-letter queue.
func (e *Entity) settle(q *queue.Queue, how queue.Settlement, tokens ...queue.LockToken) (errs []error) {
	errs = q.Settle(how, tokens...)
	done := len(tokens)
	for _, err := range errs {
		if err != nil {
			done--
		}
	}
	e.activities.settled[how.Outcome].Add(uint64(done))
	return errs
}

// refusals counts what clients were refused.
type refusals struct {
	mu    sync.Mutex
	count map[string]uint64 // by condition
}

// newRefusals begins with those that people watch for at 0.
func newRefusals() *refusals {
	return &refusals{count: map[string]uint64{string(amqp.ErrCondNotFound): 0, string(amqp.ErrCondUnauthorizedAccess): 0}}
}

func (r *refusals) add(condition string) {
	condition = strings.ToValidUTF8(condition, "?")
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.count[condition]; !known && len(r.count) >= maxConditions {
		condition = "other" // a fault may have any
	}
	r.count[condition]++
}

func (r *refusals) counts() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.count)
}
