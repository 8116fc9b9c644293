// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/servicebus/rights"
)

// A transaction takes place at one queue or topic, and in one partition of it. Messages reach other
// entities when they are sent via that one: over a link that says so, as older clients do, or over
// one whose AMQP session has a coordinator. Newer clients (EnableCrossEntityTransactions of .NET)
// have a single session, with a coordinator first. There everything is sent via the entity of the
// first link, and nothing is received from another: azure-sdk-for-net pull request 18402,
// azure-sdk-for-java issue 39046.

// A scope is what the links of one AMQP session have in common. The mutex of the connection's
// transactions guards it.
type scope struct {
	coordinated bool
	root        *Entity // of the first link, nil: there was none
}

// scopeOf returns the scope of a session, with the mutex held.
func scopeOf(s *server.Session) *scope {
	sc, _ := s.Local.(*scope)
	if sc == nil {
		sc = &scope{}
		s.Local = sc
	}
	return sc
}

// coordinate notes that a session has a coordinator.
func (ts *transactions) coordinate(s *server.Session) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	scopeOf(s).coordinated = true
}

// bind notes that a session has a link to e.
func (ts *transactions) bind(s *server.Session, e *Entity) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if sc := scopeOf(s); sc.root == nil {
		sc.root = e.root()
	}
}

// rootFor returns where a transaction takes place that a link to e takes part in.
func (ts *transactions) rootFor(s *server.Session, e *Entity) *Entity {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if sc := scopeOf(s); sc.coordinated && sc.root != nil {
		return sc.root
	}
	return e.root()
}

func errSpans() *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotAllowed, "Local transactions cannot span multiple top-level entities such as queue or topic.")
}

// openTarget returns the entity that the link of a sender is attached to, and the one that its
// messages go to via that. The service takes them in a queue of the first; here they go straight to
// the other.
func (c *conn) openTarget(class *rights.Class) (via, e *Entity, err *amqp.Error) {
	if via, err = c.ns.entities.open(class.Address.Entity()); err == nil {
		err = via.mayBeSentTo()
	}
	if err != nil || class.Destination.IsNamespace() {
		return via, via, err
	}
	if e, err = c.ns.entities.open(class.Destination.Entity()); err == nil {
		err = e.mayBeSentTo()
	}
	return via, e, err
}
