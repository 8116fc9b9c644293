// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"sync"

	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// maxHops is how often a message is forwarded. A topic counts, too.
const maxHops = 4

// Reasons for which a message that cannot be forwarded lies in the transfer
// dead-letter queue. The service names the first; the others are not documented.
const (
	reasonMaxHops      = "MaxTransferHopCountExceeded"
	reasonNotForwarded = "ForwardingFailed"
)

// A mover takes what waits in one queue to where it belongs: from a topic to its
// subscriptions, from a queue, a subscription or their dead-letter queue to
// where they forward.
//
// The sender runs the mover before its send is acknowledged, so that a client
// finds its message where it is received. The mover's own goroutine does the
// rest: what becomes active later, what a lapsed lock gives back.
//
// A queue with sessions is emptied session by session, and by the goroutine
// alone. What the service does there is not known: it accepts such an entity,
// and its documentation says that forwarding is not supported.
type mover struct {
	from     *queue.Queue
	consumer *queue.Consumer                                    // nil: from has sessions
	over     chan struct{}                                      // closed by close; nil where there is a consumer
	deliver  func(*queue.Delivery) (reason, description string) // empty: it has arrived

	turn   sync.Mutex // held while run is at work
	ds     []queue.Delivery
	tokens []queue.LockToken // of ds
	failed []undelivered
}

// moverCredit is how many messages a mover may hold.
const moverCredit = 256

func newMover(from *queue.Queue, deliver func(*queue.Delivery) (reason, description string)) *mover {
	m := &mover{from: from, deliver: deliver}
	if from.Config().RequiresSession {
		m.over = make(chan struct{})
		return m
	}
	m.consumer = from.NewConsumer(queue.PeekLock)
	m.consumer.AddCredit(moverCredit)
	return m
}

func (m *mover) close() {
	if m.consumer == nil {
		close(m.over)
		return
	}
	m.consumer.Close()
}

// serve moves until the mover is closed.
func (m *mover) serve() {
	if m.consumer == nil {
		m.serveSessions()
		return
	}
	for range m.consumer.Ready() {
		m.turn.Lock()
		m.run(m.consumer)
		m.turn.Unlock()
	}
}

func (m *mover) serveSessions() {
	for {
		session, err := m.from.NextSession(m.over)
		if err != nil {
			return // the mover or the queue is closed
		}
		consumer := session.NewConsumer(queue.PeekLock)
		consumer.AddCredit(moverCredit)
		m.turn.Lock()
		m.run(consumer)
		m.turn.Unlock()
		session.Close()
	}
}

// now moves the messages that have come. wait says whether to wait for another who is at it:
// one that holds a mover already must not, because forwards can form a circle.
// What it leaves is the other's, or serve's, to move.
func (m *mover) now(wait bool) {
	if m.consumer == nil {
		return
	}
	if wait {
		m.turn.Lock()
	} else if !m.turn.TryLock() {
		return
	}
	defer m.turn.Unlock()
	m.run(m.consumer)
}

func (m *mover) run(consumer *queue.Consumer) {
	for {
		m.ds, _ = consumer.Take(m.ds[:0])
		if len(m.ds) == 0 {
			return
		}
		m.carry()
		consumer.AddCredit(int64(len(m.ds)))
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
		_ = m.from.ReleaseAll(m.tokens)
		return
	}
	m.failed = m.failed[:0]
	for i := range m.ds {
		if reason, description := m.deliver(&m.ds[i]); reason != "" {
			m.failed = append(m.failed, undelivered{i, queue.Settlement{
				Outcome: queue.TransferDeadLetter, DeadLetterReason: reason, DeadLetterErrorDescription: description,
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

// move runs the movers after messages have arrived. See now for wait.
func (e *Entity) move(wait bool) {
	if ms := e.movers.Load(); ms != nil && ms.main != nil {
		ms.main.now(wait)
	}
}

func (ms *movers) close() {
	if ms == nil {
		return
	}
	for _, m := range []*mover{ms.main, ms.dead} {
		if m != nil {
			m.close()
		}
	}
}

// setMovers gives the entity the movers that its settings ask for, in place of
// those that it has.
func (e *Entity) setMovers() {
	c := e.common()
	ms := &movers{}
	switch {
	case e.kind == KindTopic:
		ms.main = newMover(e.queue, (&distributor{topic: e}).distribute)
	case c.forwardTo != "":
		ms.main = newMover(e.queue, e.forward(c.forwardTo, false))
	}
	if c.forwardDLQ != "" {
		ms.dead = newMover(e.queue.DeadLetterQueue(), e.forward(c.forwardDLQ, true))
	}
	e.movers.Swap(ms).close()
	for _, m := range []*mover{ms.main, ms.dead} {
		if m != nil {
			e.ns.b.links.Go(m.serve)
		}
	}
}

// forward returns how a delivery gets from e to the entity at path to. The
// destination is looked up each time: it may come and go.
func (e *Entity) forward(to string, deadLetters bool) func(*queue.Delivery) (reason, description string) {
	name := parseAddress(to).Entity()
	return func(d *queue.Delivery) (reason, description string) {
		if d.Hops >= maxHops {
			return reasonMaxHops, fmt.Sprintf("The message has been forwarded %d times, which is the limit.", maxHops)
		}
		target, err := e.ns.openFor(name, e)
		if err != nil {
			return reasonNotForwarded, err.Description
		}
		m := onward(&d.View)
		if target.queue.Config().Partitioned {
			m.PartitionKey = message.PartitionKey(m.Body) // which a queue does not keep
		}
		if deadLetters {
			m.DeadLetterSource = e.path
		}
		if err := target.send(true, m); err != nil {
			return reasonNotForwarded, err.Description
		}
		return "", ""
	}
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
