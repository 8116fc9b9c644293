// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"math"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// schedule stores messages that become active later, all or none, and returns
// the sequence numbers to cancel them by. The time stands in each message.
func (m management) schedule(e *Entity, q *queue.Queue, a *arguments) response {
	if q != e.queue {
		return failure(queue.ErrDeadLetterQueue)
	}
	var messages []queue.Message
	a.elements("messages", math.MaxInt, func(r *amqp.Reader) {
		entry := arguments{raw: r.Raw()}
		var encoded []byte
		entry.read("message", true, func(r *amqp.Reader) { encoded = r.Binary() })
		if a.err = entry.err; a.err != nil {
			return
		}
		if a.err = e.hasRoomFor(encoded); a.err != nil { // the link may allow more
			return
		}
		// A copy: the queue keeps it, the request goes.
		scheduled, refusal := message.Read(bytes.Clone(encoded))
		if refusal == nil && scheduled.ScheduledEnqueueTime.IsZero() {
			refusal = amqp.Errorf(condArgumentError, "A message to schedule has no annotation '%s'.", message.AnnScheduledEnqueueTime)
		}
		a.err = refusal
		messages = append(messages, scheduled)
	})
	if a.err != nil {
		return refused(a.err)
	}
	schedule := e.schedule
	if a.txn != nil {
		schedule = func(ms ...queue.Message) ([]int64, *amqp.Error) { return m.txns.schedule(a.txn.TxnID, e, ms) }
	}
	numbers, err := schedule(messages...)
	if err != nil {
		return refused(err)
	}
	all := make(amqp.Array, len(numbers))
	for i, n := range numbers {
		all[i] = n
	}
	return okOne("sequence-numbers", all)
}

// okOne answers with a map of one entry. Where it holds numbers or times clients
// insist on an array, a list will not do; where it holds rules, on a list.
func okOne(name string, all any) response {
	body, start := amqp.BeginMap(nil)
	body = amqp.AppendString(body, name)
	body, err := amqp.AppendValue(body, all)
	if err != nil {
		return failure(err)
	}
	return ok(amqp.EndMap(body, start, 1))
}
