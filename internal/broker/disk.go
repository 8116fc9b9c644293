// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// A Disk keeps the entities of a broker and what they hold, so that both outlive the process. A
// store.Store is one. A broker without a Disk is in memory alone.
//
// Each outcome leaves for its client after everything that was changed before is on disk: no client
// has heard of anything that a loss of power takes back.
type Disk interface {
	// Entities calls each with the descriptions of all entities, by number, and returns the highest
	// number that any entity ever had. Entities and Load are for the time before anything is reported.
	Entities(each func(id uint32, description []byte) error) (highest uint32, err error)
	// Load calls each with the messages of a queue, as Queue.Restore takes them, and returns what
	// Queue.Resume takes.
	Load(id uint32, each func(*queue.Change) error) (last int64, err error)
	// PutEntity keeps the description of an entity under the number of its queue, in place of the one
	// that it had.
	PutEntity(id uint32, description []byte)
	// Drop forgets an entity and its queue, which is closed, with all messages.
	Drop(id uint32)
	// Queue is the log of the queue with this number.
	Queue(id uint32) queue.Log
	// Hold keeps what the queues report until release in one piece. A holder must not wait for the
	// disk, and not hold once more.
	Hold() (release func())
	// After calls f when everything is on disk that was reported before, at once when it is there
	// already. f must not wait. Errors: queue.ErrNoRoom, queue.ErrNotStored.
	After(f func(error))
	// Trouble is why nothing can be written now: queue.ErrNoRoom, queue.ErrNotStored or nil.
	Trouble() error
	// Backlog is why nothing more may wait to be written, nil: it may. Reads ask for it, which go on
	// in trouble and add a little each.
	Backlog() error
}

// A DiskGate is what outcomes wait for before they leave for a client. Without a Disk they do not wait.
type DiskGate struct{ disk Disk }

// Disk returns the gate of what happens in the namespace.
func (n *Namespace) Disk() DiskGate { return n.b.disk }

// durable reports whether outcomes wait for a disk. Those who would only make a function for it
// ask first.
func (g DiskGate) durable() bool { return g.disk != nil }

// after calls f when everything is on disk that was changed until now, or with the reason why that
// cannot be said.
func (g DiskGate) after(f func(*amqp.Error)) {
	if !g.durable() {
		f(nil)
		return
	}
	g.disk.After(func(err error) { f(refusalOf(err)) })
}

// Trouble is why nothing may be changed for a client now, nil: it may. Reads go on
// meanwhile, and so do expiry and forwarding.
func (g DiskGate) Trouble() *amqp.Error {
	if !g.durable() {
		return nil
	}
	return refusalOf(g.disk.Trouble())
}

// DeliveryTrouble is why nothing may be delivered now, nil: it may. A delivery that deletes is a
// change. A lock is not, as long as its mark may wait for the disk.
func (g DiskGate) DeliveryTrouble(deletes bool) *amqp.Error {
	if deletes || !g.durable() {
		return g.Trouble()
	}
	return refusalOf(g.disk.Backlog())
}

// Wait returns when everything is on disk that was changed until now, so that a client may hear of it.
func (g DiskGate) Wait() *amqp.Error {
	if !g.durable() {
		return nil
	}
	return refusalOf(g.await())
}

func (g DiskGate) await() error {
	done := make(chan error, 1)
	g.disk.After(func(err error) { done <- err })
	return <-done
}

// durably makes a change, and returns when it is on disk. While there is trouble with the disk it
// changes nothing. Errors: queue.ErrNoRoom, queue.ErrNotStored, and those of change.
func (g DiskGate) durably(change func() error) error {
	if !g.durable() {
		return change()
	}
	if err := g.disk.Trouble(); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	return g.await()
}

// hold is Disk.Hold.
func (g DiskGate) hold() (release func()) {
	if !g.durable() {
		return func() {}
	}
	return g.disk.Hold()
}

// keep puts on disk that e has these settings and rules. The namespace's mutex is held, so that the
// last to change it is the last to be kept. Errors: ErrInvalidConfig.
func (e *Entity) keep(s *settings, rules []*rule, updated time.Time) error {
	if e.number == 0 {
		return nil
	}
	text, err := e.describe(s, rules, updated)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidConfig, e.path, err)
	}
	e.ns.b.cfg.Disk.PutEntity(e.number, text)
	return nil
}
