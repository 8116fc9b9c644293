// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/queue"
)

// A client marks its operations within a transaction by a transactional-state. The mark is on the
// transfer of a message, on the disposition of a message that it has received, or on the transfer
// of a request to $management. Receiving takes no part in transactions, and neither does what only
// looks at messages or renews locks: such requests are answered at once, whether they are marked or
// not. Other requests that take no part, see outside, are refused where they are marked.

// transactionOf returns the mark on a transfer, nil when there is none. A
// transfer has no other state here.
func transactionOf(st amqp.DeliveryState) (*amqp.TransactionalState, *amqp.Error) {
	switch st := st.(type) {
	case nil:
		return nil, nil
	case *amqp.TransactionalState:
		return st, nil
	}
	return nil, amqp.Errorf(amqp.ErrCondNotImplemented, "A transfer cannot bring an outcome.")
}

// acceptedIn is how a transfer is accepted: provisionally, within a transaction.
// A refusal is never provisional.
func acceptedIn(txn *amqp.TransactionalState) amqp.DeliveryState {
	if txn == nil {
		return amqp.Accepted{}
	}
	return &amqp.TransactionalState{TxnID: txn.TxnID, Outcome: amqp.Accepted{}}
}

// send is Entity.send within a transaction at root.
func (ts *transactions) send(id []byte, root, e *Entity, ms []queue.Message) *amqp.Error {
	return ts.enlist(id, root, len(ms), func() (part, *amqp.Error) {
		if err := e.mayBeSentTo(); err != nil {
			return nil, err
		}
		e.touch()
		r, err := e.queue.Reserve(false, ms...)
		if err != nil {
			return nil, e.refusal(err)
		}
		return sending{e, r, len(ms), e.root() != root}, nil
	})
}

// schedule is Entity.schedule within a transaction. The numbers are known at
// once, and lead to the messages when it is committed.
func (ts *transactions) schedule(id []byte, e *Entity, ms []queue.Message) (seqs []int64, refusal *amqp.Error) {
	refusal = ts.enlist(id, e.root(), len(ms), func() (part, *amqp.Error) {
		if err := e.mayBeSentTo(); err != nil {
			return nil, err
		}
		e.touch()
		r, err := e.queue.Reserve(true, ms...)
		if err != nil {
			return nil, e.refusal(err)
		}
		seqs = r.Numbers()
		return sending{e, r, len(ms), false}, nil
	})
	return seqs, refusal
}

// settle is Queue.Settle within a transaction, of all or none. After a rollback the
// locks go on, or otherwise is done to the deliveries. The queue is one of e.
func (ts *transactions) settle(
	id []byte, e *Entity, q *queue.Queue, how queue.Settlement, tokens []queue.LockToken, otherwise *queue.Settlement, committed func(),
) *amqp.Error {
	return ts.enlist(id, e.root(), len(tokens), func() (part, *amqp.Error) {
		h, err := q.Hold(how, tokens...)
		if err != nil {
			return nil, refusalOf(err)
		}
		counted := func() {
			e.activities.settled[how.Outcome].Add(uint64(len(tokens)))
			if committed != nil {
				committed()
			}
		}
		return settling{q, h, otherwise, counted}, nil
	})
}

// setState is Sessions.SetState within a transaction.
func (ts *transactions) setState(id []byte, e *Entity, session string, state []byte) *amqp.Error {
	return ts.enlist(id, e.root(), 0, func() (part, *amqp.Error) {
		h, err := e.queue.Sessions().HoldState(session, state)
		if err != nil {
			return nil, e.refusal(err)
		}
		return stating{h}, nil
	})
}

// cancelScheduled is Queue.CancelScheduled within a transaction.
func (ts *transactions) cancelScheduled(id []byte, e *Entity, q *queue.Queue, seqs []int64) *amqp.Error {
	return ts.enlist(id, e.root(), len(seqs), func() (part, *amqp.Error) {
		h, err := q.HoldScheduled(seqs...)
		if err != nil {
			return nil, errCancel(err)
		}
		return settling{q, h, nil, nil}, nil
	})
}

// dispositionIn is Disposition within a transaction: the outcome takes effect when that is
// committed, and until then the locks hold. After a rollback the client still has the locks, and
// settles over $management: the link has forgotten the deliveries. Those of a session it has not,
// since the .NET SDK settles them over their link alone. It has let go of the deliveries that it
// has settled with its disposition, as Qpid JMS does: they get the default outcome of the link.
func (r *receiver) dispositionIn(txn *amqp.TransactionalState, ds []*server.Outgone, settled bool) {
	how, answer, refusal := settlementOf(txn.Outcome)
	if refusal == nil && (txn.Outcome == nil || answer == nil) {
		refusal = amqp.Errorf(amqp.ErrCondNotAllowed, "The disposition names a transaction and no outcome.")
	}
	tokens := make([]queue.LockToken, len(ds))
	for i, d := range ds {
		tokens[i] = d.Token.(queue.LockToken)
	}
	var otherwise *queue.Settlement
	var committed func()
	switch {
	case r.session != nil && !settled:
		ds = slices.Clone(ds) // they are ours during the call only
		committed = func() {
			r.conn.b.disk.after(func(refusal *amqp.Error) {
				if refusal != nil {
					r.refuse(ds, refusal)
					return
				}
				r.link.Settle(ds, answer)
			})
		}
	case settled:
		otherwise = new(defaultOutcome(r.link.Attach().Source))
	}
	if refusal == nil {
		refusal = r.conn.txns.settle(txn.TxnID, r.entity, r.queue, how, tokens, otherwise, committed)
	}
	r.noteSettled(how.Outcome.String(), len(ds), refusal)
	switch {
	case refusal != nil && settled:
		r.conn.txns.doom(txn.TxnID, refusal)
		r.queue.Settle(*otherwise, tokens...) // those whose locks are lost need nothing
	case refusal != nil:
		r.link.Settle(ds, r.entity.rejected(refusal))
	case !settled && r.session != nil:
		r.link.Answer(ds, &amqp.TransactionalState{TxnID: txn.TxnID, Outcome: answer})
	case !settled:
		r.link.Settle(ds, &amqp.TransactionalState{TxnID: txn.TxnID, Outcome: answer})
	}
}
