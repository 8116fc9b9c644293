// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// maxBatchDelete is the most messages that one request deletes, that of a Premium namespace.
const maxBatchDelete = 4000

// batchDelete removes the oldest messages that nobody has locked. The service does so as well as it
// can, and so a client asks again until nothing is deleted.
func (m management) batchDelete(_ *Entity, q *queue.Queue, a *arguments) response {
	count := a.integer("message-count", true)
	before := m.ns.Now()
	a.read("enqueued-time-utc", false, func(r *amqp.Reader) {
		// The times that a client sees are cut to the millisecond. One that names the time of a message
		// means the message, too.
		before = r.Timestamp().Time().Add(time.Millisecond - time.Microsecond)
	})
	var session *string
	if id, given := a.session(false); given {
		session = &id
	}
	switch {
	case a.err != nil:
		return refused(a.err)
	case count < 1 || count > maxBatchDelete:
		return refused(amqp.Errorf(condOutOfRange, "The argument 'message-count' has to be between 1 and %d.", maxBatchDelete))
	case q.Config().Partitioned:
		return refused(amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to delete messages in batches from a partitioned entity."))
	}
	deleted, err := q.DeleteBatch(int(count), before, session)
	switch {
	case err != nil:
		return failure(err)
	case deleted == 0:
		none := noContent()
		none.condition = condMessageNotFound // the JavaScript SDK's purgeMessages takes no other 204 for the end
		return none
	}
	body, start := amqp.BeginMap(nil)
	body = amqp.AppendString(body, "message-count")
	body = amqp.AppendInt(body, int32(deleted))
	return ok(amqp.EndMap(body, start, 1))
}
