// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// session reads the name of the session that an operation is about. "" is one.
func (a *arguments) session(required bool) (id string, given bool) {
	a.read("session-id", required, func(r *amqp.Reader) {
		id, given = r.String(), true
	})
	return id, given
}

// renewSessionLock renews the lock of a session, whichever connection
// holds it.
func (m management) renewSessionLock(_ *Entity, q *queue.Queue, a *arguments) response {
	id, _ := a.session(true)
	if a.err != nil {
		return refused(a.err)
	}
	until, err := q.Sessions().RenewLock(id)
	if err != nil {
		return failure(err)
	}
	body, start := amqp.BeginMap(nil)
	body = amqp.AppendString(body, "expiration")
	body = amqp.AppendTimestamp(body, amqp.TimestampOf(until))
	return ok(amqp.EndMap(body, start, 1))
}

// sessionState returns the state of a session, null where it has none. Like
// the service it refuses when nobody holds the lock.
func (m management) sessionState(_ *Entity, q *queue.Queue, a *arguments) response {
	id, _ := a.session(true)
	if a.err != nil {
		return refused(a.err)
	}
	state, err := q.Sessions().State(id)
	if err != nil {
		return failure(err)
	}
	body, start := amqp.BeginMap(nil)
	body = amqp.AppendString(body, "session-state")
	if state == nil {
		body = amqp.AppendNull(body)
	} else {
		body = amqp.AppendBinary(body, state)
	}
	return ok(amqp.EndMap(body, start, 1))
}

// setSessionState replaces the state of a session. null clears it, and so does
// an empty one: that is what Go's nil looks like on the wire.
func (m management) setSessionState(e *Entity, q *queue.Queue, a *arguments) response {
	id, _ := a.session(true)
	var state []byte
	a.read("session-state", false, func(r *amqp.Reader) {
		state = bytes.Clone(r.Binary()) // the queue keeps it, the request goes
	})
	if a.err != nil {
		return refused(a.err)
	}
	if most := e.MaxMessageSize(); uint64(len(state)) > most { // the bound of the service: see its quotas
		return refused(amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "The session state has %d bytes, %d is the most.", len(state), most))
	}
	if a.txn != nil && q == e.queue {
		if refusal := m.txns.setState(a.txn.TxnID, e, id, state); refusal != nil {
			return refused(refusal)
		}
		return ok(nil)
	}
	if err := q.Sessions().SetState(id, state); err != nil {
		return failure(err)
	}
	return ok(nil)
}

// maxSessions is the most sessions that one request lists.
const maxSessions = 1000

// maxTimestamp is the end of what .NET takes for a time, the last second of the
// year 9999. The service takes anything later for it.
var maxTimestamp = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// sessions lists sessions: those whose state was set after a time, or, when that
// is the end of time, those that have active messages or a state.
func (m management) sessions(_ *Entity, q *queue.Queue, a *arguments) response {
	after := maxTimestamp
	a.read("last-updated-time", false, func(r *amqp.Reader) { after = r.Timestamp().Time() })
	skip := a.integer("skip", false)
	top := a.integer("top", true)
	switch {
	case a.err != nil:
		return refused(a.err)
	case top <= 0 || skip < 0 || skip > math.MaxInt32:
		return refused(amqp.Errorf(condOutOfRange, "The argument 'top' has to be positive, and 'skip' not negative."))
	case !q.Config().RequiresSession:
		return failure(queue.ErrNotSessionful)
	}
	switch {
	case !after.Before(maxTimestamp):
		after = time.Time{}
	case after.IsZero():
		after = time.Unix(0, 0) // before any state, and no zero value
	}
	ids := q.Sessions().List(after, int(skip), int(min(top, maxSessions)))
	if len(ids) == 0 {
		return noContent()
	}
	all := make(amqp.Array, len(ids))
	for i, id := range ids {
		all[i] = id
	}
	body, start := amqp.BeginMap(nil)
	body = amqp.AppendString(body, "skip")
	body = amqp.AppendInt(body, int32(skip))
	body = amqp.AppendString(body, "sessions-ids") // sic
	body, err := amqp.AppendValue(body, all)
	if err != nil {
		return failure(fmt.Errorf("listing sessions: %w", err))
	}
	return ok(amqp.EndMap(body, start, 2))
}

// lockLost tells a client that names its session which of the two locks is gone:
// without the session's there is none of a message.
func lockLost(q *queue.Queue, id string, err error) error {
	if _, gone := q.Sessions().LockedUntil(id); gone != nil {
		return gone
	}
	return err
}
