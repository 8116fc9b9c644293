// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// A Disk keeps what the entities of a broker hold, so that it outlives the process. A store.Store is
// one. A broker without a Disk is in memory alone.
//
// Each outcome leaves for its client after everything that was changed before is on disk: no client
// has heard of anything that a loss of power takes back.
type Disk interface {
	// Queue is the log of the queue with this number.
	Queue(id uint32) queue.Log
	// Hold keeps what the queues report until release in one piece. A holder must not wait for the
	// disk, and not hold once more.
	Hold() (release func())
	// After calls f when everything is on disk that was reported before, at once when it is there
	// already. f must not wait. Errors: queue.ErrNoRoom, queue.ErrNotStored.
	After(f func(error))
}

// durable reports whether outcomes wait for a disk. Those who would only make a function for it
// ask first.
func (b *Broker) durable() bool { return b.cfg.Disk != nil }

// after calls f when everything is on disk that was changed until now, or with the reason why that
// cannot be said.
func (b *Broker) after(f func(*amqp.Error)) {
	if !b.durable() {
		f(nil)
		return
	}
	b.cfg.Disk.After(func(err error) {
		if err != nil {
			f(refusalOf(err))
			return
		}
		f(nil)
	})
}

// wait is after for a goroutine that may wait.
func (b *Broker) wait() *amqp.Error {
	if !b.durable() {
		return nil
	}
	done := make(chan *amqp.Error, 1)
	b.after(func(refusal *amqp.Error) { done <- refusal })
	return <-done
}

// hold is Disk.Hold.
func (b *Broker) hold() (release func()) {
	if !b.durable() {
		return func() {}
	}
	return b.cfg.Disk.Hold()
}

// WaitForDisk returns when everything is on disk that was changed until now, so that a client may
// hear of it.
func (n *Namespace) WaitForDisk() *amqp.Error { return n.b.wait() }
