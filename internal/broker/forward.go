// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// maxHops is how often a message is forwarded. A topic counts, too. Dead letters are
// forwarded as often again: what has used up its hops goes where dead letters go.
const maxHops = 4

// Why a message that cannot be forwarded is a dead letter. The first and its description
// are documented. The third is the service's (azure-service-bus issue 693), which says
// nothing of its other reasons.
const (
	reasonMaxHops      = "MaxTransferHopCountExceeded"
	descriptionMaxHops = "The maximum number of allowed hops when forwarding between queues has been exceeded. This value is set to 4."
	reasonNoTarget     = "The transfer destination entity does not exist."
	reasonNotForwarded = "ForwardingFailed"
)

// A mover takes messages from the queue in which they wait to where they belong. A topic's messages
// go to its subscriptions. Those of a queue, a subscription or a dead-letter queue go to where it
// forwards.
//
// The sender runs the mover before its send is acknowledged, so that a client
// finds its message where it is received. The mover's own goroutine does the
// rest: what becomes active later, what a lapsed lock gives back.
type mover struct {
	from     *queue.Queue
	consumer *queue.Consumer
	deliver  func(*queue.Delivery) (reason, description string) // empty: it has arrived
	disk     DiskGate

	turn   sync.Mutex // held while run is at work
	ds     []queue.Delivery
	tokens []queue.LockToken // of ds
	failed []undelivered
}

// moverCredit is how many messages a mover may hold.
const moverCredit = 256

func newMover(from *queue.Queue, disk DiskGate, deliver func(*queue.Delivery) (reason, description string)) *mover {
	m := &mover{from: from, consumer: from.NewConsumer(queue.PeekLock), deliver: deliver, disk: disk}
	m.consumer.AddCredit(moverCredit)
	return m
}

// serve moves until the mover is closed.
func (m *mover) serve() {
	for range m.consumer.Ready() {
		m.turn.Lock()
		m.run(false)
		m.turn.Unlock()
	}
}

// now moves the messages that have come. wait says whether to wait for another caller that is
// moving them. A caller that holds a mover already must not wait, because forwards can form a
// circle. Messages that now leaves are moved by the other caller, or by serve.
func (m *mover) now(wait bool) {
	if wait {
		m.turn.Lock()
	} else if !m.turn.TryLock() {
		return
	}
	defer m.turn.Unlock()
	m.run(!wait)
}

// run moves what has come. nested says that the caller is a mover at work, whose Hold lasts.
func (m *mover) run(nested bool) {
	for {
		var err error
		m.ds, _, err = m.consumer.Take(m.ds[:0])
		if err != nil || len(m.ds) == 0 {
			return // after an error, which the disk reports, they stay where they are
		}
		release := func() {}
		if !nested {
			release = m.disk.hold()
		}
		m.carry()
		release()
		m.consumer.AddCredit(int64(len(m.ds)))
		clear(m.ds)
		clear(m.failed)
	}
}

// carry delivers what is in hand. The locks are held meanwhile: what arrives must
// not be delivered again, however long it takes and wherever the clock jumps.
func (m *mover) carry() {
	m.tokens = m.tokens[:0]
	for i := range m.ds {
		m.tokens = append(m.tokens, m.ds[i].LockToken)
	}
	held, err := m.from.Hold(completed, m.tokens...)
	if err != nil {
		// One has lapsed already, or the queue was closed. The rest comes again.
		_ = m.from.Settle(queue.Settlement{Outcome: queue.Release}, m.tokens...)
		return
	}
	m.failed = m.failed[:0]
	for i := range m.ds {
		if reason, description := m.deliver(&m.ds[i]); reason != "" {
			m.failed = append(m.failed, undelivered{i, queue.Settlement{
				Outcome: queue.DeadLetter, DeadLetterReason: reason, DeadLetterErrorDescription: description,
			}})
		}
	}
	if len(m.failed) == 0 {
		_ = held.Settle() // an error: the queue was closed
		return
	}
	next := 0
	_ = held.SettleEach(func(i int) *queue.Settlement { // an error: as above
		if next < len(m.failed) && m.failed[next].at == i {
			next++
			// From a dead-letter queue there is nowhere to go: the message stays, and its lock
			// keeps it from being tried again at once.
			return &m.failed[next-1].how
		}
		return &completed
	})
}

// completed settles what a mover has delivered.
var completed = queue.Settlement{Outcome: queue.Complete}

// undelivered is what could not be delivered, by its place in mover.ds.
type undelivered struct {
	at  int
	how queue.Settlement
}

// movers are those of one entity, nil where there is none to be.
type movers struct{ main, dead *mover }

// move runs the movers after messages have arrived: what cannot be forwarded is a dead
// letter, and goes on as one. See now for wait.
func (e *Entity) move(wait bool) {
	ms := e.movers.Load()
	if ms == nil || ms.main == nil {
		return
	}
	if ms.main.now(wait); ms.dead != nil {
		ms.dead.now(wait)
	}
}

func (ms *movers) close() {
	if ms == nil {
		return
	}
	for _, m := range []*mover{ms.main, ms.dead} {
		if m != nil {
			m.consumer.Close()
		}
	}
}

// setMoversLocked gives the entity the movers that its settings ask for, in place of
// those that it has. The namespace's mutex is held.
func (e *Entity) setMoversLocked() {
	c := e.common()
	ms, disk := &movers{}, e.ns.b.disk
	switch {
	case e.kind == KindTopic:
		ms.main = newMover(e.queue, disk, (&distributor{topic: e}).distribute)
	case c.forwardTo != "":
		ms.main = newMover(e.queue, disk, newForwarderLocked(e, c.forwardTo, false).forward)
	}
	if c.forwardDLQ != "" {
		ms.dead = newMover(e.queue.DeadLetterQueue(), disk, newForwarderLocked(e, c.forwardDLQ, true).forward)
	}
	e.movers.Swap(ms).close() // from now on senders run them
	for _, m := range []*mover{ms.main, ms.dead} {
		if m != nil {
			e.ns.b.links.Go(m.serve)
		}
	}
}

// A forwarder takes messages from an entity to the one that it forwards to. It is bound to the
// entity that is there when it is made, as in the service (azure-service-bus issue 693). One that is
// made later under the same name is another, until the first is updated. If there is none yet, the
// first message looks for it.
type forwarder struct {
	from        *Entity
	to          string
	target      *Entity // nil: none yet
	deadLetters bool    // takes those of from
}

func newForwarderLocked(e *Entity, to string, deadLetters bool) *forwarder {
	name := parseAddress(to).Entity()
	return &forwarder{
		from:        e,
		to:          name,
		target:      e.ns.entities.byKey[key(name)],
		deadLetters: deadLetters,
	}
}

func (f *forwarder) forward(d *queue.Delivery) (reason, description string) {
	hops := maxHops
	if f.deadLetters {
		hops += maxHops
	}
	if d.Hops >= hops {
		return reasonMaxHops, descriptionMaxHops
	}
	err := f.push(d)
	switch {
	case err == nil:
		return "", ""
	case err.Condition == amqp.ErrCondNotFound:
		return reasonNoTarget, reasonNoTarget
	case err.Condition == amqp.ErrCondNotAllowed && f.target.RequiresSession():
		return queue.ReasonNoSession, queue.DescriptionNoSession
	}
	return reasonNotForwarded, err.Description
}

// push sends a delivery to the target. One that has been deleted has a closed queue.
func (f *forwarder) push(d *queue.Delivery) (err *amqp.Error) {
	if f.target == nil {
		if f.target, err = f.from.ns.entities.openFor(f.to, f.from); err != nil {
			return err
		}
	}
	m := onward(&d.View)
	if f.target.queue.Config().Partitioned {
		m.PartitionKey = message.PartitionKey(m.Body) // which a queue does not keep
	}
	if f.deadLetters {
		m.DeadLetterSource = f.from.path
	}
	return f.target.send(true, m)
}

// onward is a message as it moves on: what its sender said, and what it became
// on its way. Its time to live begins again.
func onward(v *queue.View) queue.Message {
	m := v.Message
	if v.EntityTTL {
		m.TTL = 0 // the next entity has one of its own
	}
	m.Hops = v.Hops + 1
	if m.EnqueuedSequenceNumber == 0 {
		m.EnqueuedSequenceNumber = v.SequenceNumber
	}
	m.Properties = v.Properties
	m.DeadLetterReason, m.DeadLetterErrorDescription = v.DeadLetterReason, v.DeadLetterErrorDescription
	return m
}
