// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"sync/atomic"
	"time"
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
	b        *Broker
	name     string
	host     host
	faults   faults
	offset   atomic.Int64 // of its clock against the broker's, in nanoseconds
	entities entities
	keys     Keyring
}

func newNamespace(b *Broker, name string) *Namespace {
	n := &Namespace{b: b, name: name}
	n.keys = Keyring{b, &n.entities}
	n.entities.ns = n
	n.entities.byKey = make(map[string]*Entity)
	n.entities.nothing = n.entities.newEntity(0, KindQueue, "", nil, settings{queue: QueueConfig{}.withDefaults()})
	return n
}

// Changes grows with every entity that is made, updated or deleted. If Changes returns the same
// number before and after a caller reads entities, they are still as it read them.
func (n *Namespace) Changes() uint64 { return n.entities.changes.Load() }

// Keys says who may do what in the namespace.
func (n *Namespace) Keys() *Keyring { return &n.keys }

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
	n.entities.wake()
}

// Entity returns the queue, topic or subscription at path, and makes a queue
// where AutoCreate says so. Errors: ErrEntityNotFound, ErrTooManyEntities,
// ErrClosed.
func (n *Namespace) Entity(path string) (*Entity, error) {
	a := parseAddress(path)
	if e := n.entities.find(a.Entity()); e != nil {
		return e, nil
	}
	return n.entities.create(a.Entity(), nil)
}

// Changed returns when a queue or topic was made or last changed. ok is false where there is none.
func (n *Namespace) Changed(name string) (at time.Time, ok bool) {
	e := n.entities.find(name)
	if e == nil || e.kind == KindSubscription {
		return at, false
	}
	_, at, _ = e.times()
	return at, true
}
