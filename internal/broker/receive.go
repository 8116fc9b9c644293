// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

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
// none that lie ready behind it. A link that takes its credit back takes nothing. On the disk, all
// that lie ready are gone before the first is sent, and come back there if they are not sent. Only a
// crash in between loses them.
type receiver struct {
	conn     *conn
	link     *server.SourceLink
	entity   *Entity
	queue    *queue.Queue   // the entity's, or one of its dead-letter queues
	session  *queue.Session // whose messages they are, nil: the queue has none
	consumer *queue.Consumer
	delete   bool // receive-and-delete
}

// receiveMode is how the queue gives messages to the link that a client attaches by a.
func receiveMode(a *amqp.Attach) queue.Mode {
	if a.SndSettleMode == amqp.SndSettled {
		return queue.LockAndRemove
	}
	return queue.PeekLock
}

// newReceiver starts a receiver. session is nil where the queue has none.
func (c *conn) newReceiver(l *server.SourceLink, e *Entity, q *queue.Queue, session *queue.Session, consumer *queue.Consumer) *receiver {
	c.txns.bind(l.Session(), e)
	r := &receiver{
		conn:     c,
		link:     l,
		entity:   e,
		queue:    q,
		session:  session,
		consumer: consumer,
		delete:   receiveMode(l.Attach()) == queue.LockAndRemove,
	}
	c.b.links.Go(r.pump)
	return r
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
		if refusal := r.conn.b.disk.DeliveryTrouble(r.delete); refusal != nil {
			r.link.Detach(r.entity.tracked(refusal))
			continue // until Detached
		}
		var drained bool
		var err error
		if ds, drained, err = r.consumer.Take(ds[:0]); err != nil {
			r.link.Detach(r.entity.tracked(errUndeliverable(err)))
			continue // until Detached
		}
		payload = r.sendAll(payload, ds)
		if drained {
			r.link.Drained()
		}
		clear(ds) // bodies are not kept for a receiver that waits
	}
	if r.session != nil && r.session.Lapsed() {
		r.link.Detach(r.entity.tracked(refusalOf(queue.ErrSessionLockLost)))
	}
}

// sendAll transmits deliveries once the disk has that they were taken. It encodes into buf, which it
// returns.
func (r *receiver) sendAll(buf []byte, ds []queue.Delivery) []byte {
	if len(ds) == 0 {
		return buf
	}
	// Trouble with the disk keeps nobody from reading, but what is read and deleted would come again.
	if refusal := r.conn.b.disk.Wait(); refusal != nil && r.delete {
		r.release(ds)
		r.link.Detach(r.entity.tracked(refusal))
		return buf
	}
	sent := 0
	for i := range ds {
		err := r.fault()
		if err == nil {
			buf, err = r.send(buf[:0], &ds[i])
		}
		if err != nil {
			r.giveBack(err, ds[i:])
			break
		}
		sent++
	}
	r.entity.activities.outgoing.Add(uint64(sent))
	r.conn.note(Activity{
		Operation: OnReceive,
		Path:      addressOf(r.link.Attach()),
		Messages:  sent,
	})
	return buf
}

// fault carries out what a delivery is to suffer. An error says that nothing is
// delivered any more.
func (r *receiver) fault() error {
	f := r.conn.ns.faults.hit(OnReceive, r.entity.path, "")
	if f == nil {
		return nil
	}
	switch {
	case !f.pause(r.link):
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
	if r.delete {
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

// giveBack returns deliveries that could not be sent, uncounted. The first is
// the one that failed.
func (r *receiver) giveBack(err error, ds []queue.Delivery) {
	r.release(ds)
	switch {
	case errors.Is(err, server.ErrLinkGone):
		return
	case errors.Is(err, server.ErrNoCredit):
		// The client has taken back what the queue had spent already, and the queue would
		// set it off against the credit that comes next.
		r.consumer.AddCredit(int64(len(ds)))
		return
	}
	r.link.Detach(r.entity.tracked(errUndeliverable(err)))
}

func errUndeliverable(err error) *amqp.Error {
	return amqp.Errorf(amqp.ErrCondInternalError, "The message cannot be delivered: %v.", err)
}

// release returns deliveries, uncounted.
func (r *receiver) release(ds []queue.Delivery) {
	tokens := make([]queue.LockToken, len(ds))
	for i := range ds {
		tokens[i] = ds[i].LockToken
	}
	// A token that is lost has lapsed or was completed by send: nothing to do.
	_ = r.queue.Settle(queue.Settlement{Outcome: queue.Release}, tokens...)
}
