// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"

	"overdue/internal/amqp"
	"overdue/internal/queue"
)

// schedule stores messages that become active later, all or none, and returns
// the sequence numbers to cancel them by. The time stands in each message.
func (m management) schedule(q *queue.Queue, a *arguments) response {
	var messages []queue.Message
	a.elements("messages", maxBatchMessages, func(r *amqp.Reader) {
		entry := arguments{raw: r.Raw()}
		var encoded []byte
		entry.read("message", true, func(r *amqp.Reader) { encoded = r.Binary() })
		if a.err = entry.err; a.err != nil {
			return
		}
		// A copy: the queue keeps it, the request goes.
		message, refusal := ingest(bytes.Clone(encoded))
		if refusal == nil && message.ScheduledEnqueueTime.IsZero() {
			refusal = amqp.Errorf(condArgumentError, "A message to schedule has no annotation '%s'.", annScheduledEnqueueTime)
		}
		a.err = refusal
		messages = append(messages, message)
	})
	if a.err != nil {
		return invalid(a.err)
	}
	numbers, err := q.Schedule(messages...)
	if err != nil {
		return failure(err)
	}
	all := make(amqp.Array, len(numbers))
	for i, n := range numbers {
		all[i] = n
	}
	return okArray("sequence-numbers", all)
}

// okArray answers with a map of one array. Clients insist on an array, a list
// will not do.
func okArray(name string, all amqp.Array) response {
	body, start := amqp.BeginMap(nil)
	body = amqp.AppendString(body, name)
	body, err := amqp.AppendValue(body, all)
	if err != nil {
		return failure(err)
	}
	return ok(amqp.EndMap(body, start, 1))
}
