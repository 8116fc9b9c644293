// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"errors"
	"slices"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// Disposition settles deliveries the way their client says, all in one go. A
// client that waits for it is answered with the outcome it stated, or with
// rejected and the reason.
func (r *receiver) Disposition(ds []*server.Outgone, st amqp.DeliveryState, settled bool) {
	if f := r.conn.ns.faults.hit(OnSettle, r.entity.path, ""); f != nil {
		ds = slices.Clone(ds) // they are ours during the call only
		r.conn.suffer(f, r.link, func(refusal *amqp.Error) {
			switch {
			case refusal == nil:
				r.dispose(ds, st, settled || f.Silent)
			case !settled:
				r.noteSettled("", len(ds), refusal)
				r.link.Settle(ds, r.entity.rejected(refusal))
			}
		})
		return
	}
	r.dispose(ds, st, settled)
}

func (r *receiver) dispose(ds []*server.Outgone, st amqp.DeliveryState, settled bool) {
	if txn, ok := st.(*amqp.TransactionalState); ok {
		r.dispositionIn(txn, ds, settled)
		return
	}
	how, answer, refusal := settlementOf(st)
	switch {
	case refusal != nil:
		r.noteSettled("", len(ds), refusal)
		if !settled {
			r.link.Settle(ds, r.entity.rejected(refusal))
		}
		return
	case answer == nil:
		return // no outcome yet
	}
	if trouble := r.conn.b.disk.Trouble(); trouble != nil {
		r.noteSettled(how.Outcome.String(), len(ds), trouble)
		if !settled {
			r.refuse(ds, trouble)
		}
		return
	}
	tokens := make([]queue.LockToken, len(ds))
	for i, d := range ds {
		tokens[i] = d.Token.(queue.LockToken)
	}
	errs := r.entity.settle(r.queue, how, tokens...)
	r.noteSettled(how.Outcome.String(), len(ds), refusalOf(cmp.Or(errs...)))
	if settled {
		return // nobody waits, and a lost lock is what the client did not care to hear of
	}
	if r.conn.b.disk.durable() {
		ds = slices.Clone(ds) // they are ours during the call only
		r.conn.b.disk.after(func(refusal *amqp.Error) {
			if refusal != nil {
				r.refuse(ds, refusal)
				return
			}
			r.answer(ds, answer, errs)
		})
		return
	}
	r.answer(ds, answer, errs)
}

// noteSettled notes that deliveries were settled, or why one of them was not.
func (r *receiver) noteSettled(outcome string, deliveries int, refusal *amqp.Error) {
	r.conn.note(Activity{
		Operation: OnSettle,
		Path:      addressOf(r.link.Attach()),
		Detail:    outcome,
		Messages:  deliveries,
		Refusal:   refusal,
	})
}

// refuse answers settlements that the disk does not keep. The condition is always that of a quota:
// at server-busy the Go SDK tries again, finds that the delivery is settled, and reports success.
func (r *receiver) refuse(ds []*server.Outgone, trouble *amqp.Error) {
	r.link.Settle(ds, r.entity.rejected(&amqp.Error{
		Condition:   amqp.ErrCondResourceLimitExceeded,
		Description: trouble.Description,
	}))
}

// answer states the outcomes of ds: answer, or the reason in errs.
func (r *receiver) answer(ds []*server.Outgone, answer amqp.DeliveryState, errs []error) {
	for len(ds) > 0 {
		n := run(errs, len(ds))
		state := answer
		if errs != nil {
			if errs[0] != nil {
				err := errs[0]
				if r.session != nil && errors.Is(err, queue.ErrLockLost) {
					err = lockLost(r.queue, r.session.ID(), err)
				}
				state = r.entity.rejected(refusalOf(err))
			}
			errs = errs[n:]
		}
		r.link.Settle(ds[:n], state)
		ds = ds[n:]
	}
}

// run returns how many of n deliveries, from the first, fared like the first.
func run(errs []error, n int) int {
	if errs == nil {
		return n
	}
	i := 1
	for i < n && errs[i] == errs[0] { //nolint:errorlint // equal values get equal answers, whatever they wrap
		i++
	}
	return i
}

// settlementOf translates an outcome. answer is the client's error when it
// worked; nil says that st is no outcome.
func settlementOf(st amqp.DeliveryState) (how queue.Settlement, answer amqp.DeliveryState, refusal *amqp.Error) {
	switch st := st.(type) {
	case amqp.Accepted:
		return queue.Settlement{Outcome: queue.Complete}, st, nil
	case amqp.Released:
		return queue.Settlement{Outcome: queue.Release}, st, nil
	case nil:
		// Settled without an outcome: the client let go of it.
		return queue.Settlement{Outcome: queue.Release}, amqp.Released{}, nil
	case *amqp.Modified:
		// delivery-failed says nothing here: Go sends false and means abandon.
		how.Outcome = queue.Abandon
		if st.UndeliverableHere {
			how.Outcome = queue.Defer
		}
		how.Properties, refusal = properties(st.MessageAnnotations)
		return how, &amqp.Modified{DeliveryFailed: st.DeliveryFailed, UndeliverableHere: st.UndeliverableHere}, refusal
	case *amqp.Rejected:
		how, refusal = deadLettering(st.Error)
		// Without an error: a rejected that carries one means failure to a client.
		return how, &amqp.Rejected{}, refusal
	}
	return how, nil, nil
}

// deadLettering reads what a rejected outcome says. The SDKs put reason,
// description and properties into the error's info; for other clients the
// error itself is the reason.
func deadLettering(e *amqp.Error) (how queue.Settlement, refusal *amqp.Error) {
	how.Outcome = queue.DeadLetter
	if e == nil {
		return how, nil
	}
	rest, explained := make(amqp.Map, 0, len(e.Info)), false
	for _, p := range e.Info {
		name, _ := text(p.Key)
		said, isText := text(p.Value)
		switch isReason := name == message.PropDeadLetterReason; {
		case !isReason && name != message.PropDeadLetterDescription:
			rest = append(rest, p)
			continue
		case !isText:
			rest = append(rest, p) // what a client gives instead of a text is kept as it is
		case isReason:
			how.DeadLetterReason = said
		default:
			how.DeadLetterErrorDescription = said
		}
		explained = explained || said != "" || !isText
	}
	if e.Condition != condDeadLetter && !explained {
		how.DeadLetterReason, how.DeadLetterErrorDescription = string(e.Condition), e.Description
	}
	how.Properties, refusal = properties(rest)
	return how, refusal
}

// properties reads properties to modify, which become application properties, and may have every
// value that a sender may give those.
func properties(m amqp.Map) ([]queue.Property, *amqp.Error) {
	if len(m) == 0 {
		return nil, nil
	}
	ps := make([]queue.Property, 0, len(m))
	for _, p := range m {
		name, ok := text(p.Key)
		if !ok {
			return nil, amqp.Errorf(amqp.ErrCondNotAllowed, "The name of a property to modify is no string.")
		}
		ps = append(ps, queue.Property{Key: name, Value: p.Value})
	}
	return ps, nil
}

// text returns a string or symbol as string.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case amqp.Symbol:
		return string(v), true
	}
	return "", false
}
