// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"overdue/internal/amqp"
	"overdue/internal/amqpserver"
	"overdue/internal/queue"
)

// A receiver gives the messages of a queue to a client.
//
// In receive-and-delete mode the queue locks a message for the receiver, too,
// and the pump completes it right before it is sent: a link that goes away
// takes at most the message under way with it, not what lay ready behind it.
type receiver struct {
	link     *amqpserver.SourceLink
	queue    *queue.Queue
	consumer *queue.Consumer
	delete   bool // receive-and-delete
}

// Flow passes the client's credit on to the queue.
func (r *receiver) Flow(f amqpserver.Flow) {
	if f.Added != 0 {
		r.consumer.AddCredit(f.Added)
	}
	if f.Drain {
		r.consumer.Drain()
	}
}

// Detached ends the pump. What the client has not settled stays locked: it may
// settle over another link until the lock lapses.
func (r *receiver) Detached(*amqp.Error) { r.consumer.Close() }

// pump moves deliveries from the queue to the client until the consumer is
// closed, which Detached does.
func (r *receiver) pump() {
	var ds []queue.Delivery
	var payload []byte
	for range r.consumer.Ready() {
		var drained bool
		ds, drained = r.consumer.Take(ds[:0])
		for i := range ds {
			var err error
			if payload, err = r.send(payload[:0], &ds[i]); err != nil {
				r.giveBack(err, ds[i:])
				break
			}
		}
		if drained {
			r.link.Drained()
		}
		clear(ds) // bodies are not kept for a receiver that waits
	}
}

// send transmits one delivery, encoded into buf, which it returns.
func (r *receiver) send(buf []byte, d *queue.Delivery) ([]byte, error) {
	o := delivered(d)
	if r.delete {
		o = overlay{}
	}
	payload, err := appendMessage(buf, &d.View, o)
	if err != nil {
		return buf, err
	}
	if r.delete {
		if err := r.queue.Complete(d.LockToken); err != nil {
			// It lapsed while the client did not read: no longer ours to give, unlike the credit.
			r.consumer.AddCredit(1)
			return payload, nil
		}
	}
	t := tag(d.LockToken)
	_, err = r.link.SendOut(amqpserver.Outgoing{
		Tag:     t[:],
		Payload: payload,
		Settled: r.delete,
		Token:   d.LockToken,
	})
	return payload, err
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
	case errors.Is(err, amqpserver.ErrLinkGone):
		return
	case errors.Is(err, amqpserver.ErrNoCredit):
		// The client has taken back what the queue had spent already, and the queue would
		// set it off against the credit that comes next.
		r.consumer.AddCredit(int64(len(ds)))
		return
	}
	r.link.Detach(amqp.Errorf(amqp.ErrCondInternalError, "The message cannot be delivered: %v.", err))
}
