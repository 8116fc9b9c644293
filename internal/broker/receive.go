// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
)

// A receiver gives the messages of a queue to a client.
//
// In receive-and-delete mode, too, the queue locks a message for the receiver, and completes it at
// the moment it is sent. So a link that goes away takes at most the message under way with it, and
// none that lie ready behind it. A link that takes its credit back takes nothing.
type receiver struct {
	conn     *conn
	link     *server.SourceLink
	entity   *Entity
	queue    *queue.Queue   // the entity's, or one of its dead-letter queues
	session  *queue.Session // whose messages they are, nil: the queue has none
	consumer *queue.Consumer
	delete   bool // receive-and-delete
}

// Flow passes the client's credit on to the queue.
func (r *receiver) Flow(f server.Flow) {
	r.entity.touch()
	if f.Added != 0 {
		r.consumer.AddCredit(f.Added)
	}
	if f.Drain && !r.conn.ns.b.cfg.Quirks.Has(quirk.DrainUnanswered) {
		r.consumer.Drain()
	}
}

// Detached ends the pump. Messages that the client has not settled stay locked: it may settle over
// another link until the lock lapses. Only the lock of a session ends with its link, and takes
// those of its messages along.
func (r *receiver) Detached(*amqp.Error) {
	r.entity.links.remove(r.link)
	r.entity.touch()
	r.consumer.Close()
	if r.session != nil {
		r.session.Close()
	}
}

// pump moves deliveries from the queue to the client until the consumer is
// closed, which Detached does, or the end of a session's lock.
func (r *receiver) pump() {
	var ds []queue.Delivery
	var payload []byte
	for range r.consumer.Ready() {
		var drained bool
		ds, drained = r.consumer.Take(ds[:0])
		if len(ds) > 0 {
			// Trouble with the disk keeps nobody from reading; receive-and-delete sees to itself.
			_ = r.conn.b.wait()
		}
		for i := range ds {
			err := r.fault()
			if err == nil {
				payload, err = r.send(payload[:0], &ds[i])
			}
			if err != nil {
				r.giveBack(err, ds[i:])
				break
			}
		}
		if drained {
			r.link.Drained()
		}
		clear(ds) // bodies are not kept for a receiver that waits
	}
	if r.session != nil && r.session.Lapsed() {
		r.link.Detach(r.entity.tracked(refusalOf(queue.ErrSessionLockLost)))
	}
}

// fault carries out what a delivery is to suffer. An error says that nothing is
// delivered any more.
func (r *receiver) fault() error {
	f := r.conn.ns.faults.hit(OnReceive, r.entity.path, "")
	if f == nil {
		return nil
	}
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.link.Done():
			return server.ErrLinkGone
		}
	}
	switch {
	case f.Cut:
		r.conn.peer.Cut()
	case f.Detach, f.Error != nil:
		r.link.Detach(f.Error)
	default:
		return nil
	}
	return server.ErrLinkGone
}

// send transmits one delivery, encoded into buf, which it returns.
func (r *receiver) send(buf []byte, d *queue.Delivery) ([]byte, error) {
	o := message.Delivered(d)
	if r.delete {
		o = message.Overlay{}
	}
	payload, err := message.Append(buf, &d.View, o)
	if err != nil {
		return buf, err
	}
	t := message.Tag(d.LockToken)
	out := server.Outgoing{Tag: t[:], Payload: payload, Settled: r.delete, Batchable: true, Token: d.LockToken}
	switch {
	case r.delete && r.conn.b.durable():
		if err := r.deleteDurably(d); err != nil {
			return payload, err
		}
	case r.delete:
		out.Commit = func() bool { return r.queue.Complete(d.LockToken) == nil }
	}
	_, err = r.link.SendOut(out)
	if errors.Is(err, server.ErrWithheld) {
		// Its lock lapsed while the client did not read: no longer ours to give, unlike the credit.
		r.consumer.AddCredit(1)
		err = nil
	}
	return payload, err
}

// deleteDurably completes d and waits until that is on disk: then it may leave. A link that ends in
// between takes the message with it, as it would one under way.
func (r *receiver) deleteDurably(d *queue.Delivery) error {
	if r.link.Credit() == 0 {
		return server.ErrNoCredit
	}
	if r.queue.Complete(d.LockToken) != nil {
		return server.ErrWithheld
	}
	if refusal := r.conn.b.wait(); refusal != nil {
		return refusal
	}
	return nil
}

// giveBack returns deliveries that could not be sent, uncounted. The first is
// the one that failed.
func (r *receiver) giveBack(err error, ds []queue.Delivery) {
	tokens := make([]queue.LockToken, len(ds))
	for i := range ds {
		tokens[i] = ds[i].LockToken
	}
	// A token that is lost has lapsed or was completed by send: nothing to do.
	_ = r.queue.ReleaseAll(tokens)
	switch {
	case errors.Is(err, server.ErrLinkGone):
		return
	case errors.Is(err, server.ErrNoCredit):
		// The client has taken back what the queue had spent already, and the queue would
		// set it off against the credit that comes next.
		r.consumer.AddCredit(int64(len(ds)))
		return
	}
	r.link.Detach(r.entity.tracked(amqp.Errorf(amqp.ErrCondInternalError, "The message cannot be delivered: %v.", err)))
}
