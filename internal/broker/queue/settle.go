// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"time"
)

// Outcome is a way to settle a delivery.
type Outcome int

// The outcomes of a delivery.
const (
	Complete   Outcome = iota // done: remove the message
	Abandon                   // failed: count the delivery and give the message back
	Release                   // not used: give the message back and count nothing
	Defer                     // count the delivery and set the message aside
	DeadLetter                // move the message to the dead-letter queue
)

// Outcomes is how many there are.
const Outcomes = int(DeadLetter) + 1

func (o Outcome) String() string {
	return [Outcomes]string{"complete", "abandon", "release", "defer", "dead_letter"}[o]
}

// Settlement says how to settle. Fields that do not belong to the outcome are ignored.
type Settlement struct {
	Outcome                    Outcome
	Properties                 []Property // set on the message; not with Complete and Release
	DeadLetterReason           string     // with DeadLetter
	DeadLetterErrorDescription string     // with DeadLetter
}

// Settle settles many deliveries the same way in one go. errs[i] belongs to tokens[i]; errs is nil
// when all succeeded. A token that fails does not keep the others from being settled. Errors:
// ErrLockLost; ErrPropertiesTooLarge and ErrDeadLetterQueue, which leave the message locked;
// ErrClosed.
func (q *Queue) Settle(s Settlement, tokens ...LockToken) (errs []error) {
	now, err := q.enter()
	if err == nil {
		defer q.leave(now)
	}
	for i, t := range tokens {
		failure := err
		if failure == nil {
			failure = q.locks.settle(&s, t, now)
		}
		if failure != nil {
			if errs == nil {
				errs = make([]error, len(tokens))
			}
			errs[i] = failure
		}
	}
	return errs
}

func (l *locks) settle(s *Settlement, t LockToken, now instant) error {
	e, x, err := l.prepare(s, t)
	if err == nil {
		l.perform(s, e, x, now)
	}
	return err
}

// prepare is the half of a settlement that can fail; perform is the other. x is what e will have
// beyond the ordinary, nil when that does not change.
func (l *locks) prepare(s *Settlement, t LockToken) (e *entry, x *extra, err error) {
	e = l.tokens[t]
	if e == nil || e.held {
		return nil, nil, ErrLockLost
	}
	if s.Outcome == DeadLetter {
		if l.cfg.frozen {
			return nil, nil, ErrDeadLetterQueue
		}
		if len(s.DeadLetterReason)+len(s.DeadLetterErrorDescription) > MaxPropertiesSize {
			return nil, nil, ErrPropertiesTooLarge
		}
	}
	if s.Outcome != Complete && s.Outcome != Release && len(s.Properties) > 0 {
		if x, err = e.withProperties(s.Properties); err != nil {
			return nil, nil, err
		}
	}
	return e, x, nil
}

func (l *locks) perform(s *Settlement, e *entry, x *extra, now instant) {
	if x != nil {
		l.entries.setExtra(e, x)
	}
	switch s.Outcome {
	case Complete:
		l.unlock(e)
		l.entries.drop(e)
	case Abandon:
		l.giveBack(e, true, now)
	case Release:
		l.release(e, now)
	case Defer: // that it counts, the JavaScript SDK's live tests and Azure/azure-service-bus issue 375 show
		l.unlock(e)
		if e.state != Deferred {
			e.state = Deferred
			l.entries.deferred++
			l.changes.note(e)
		}
		if l.countDelivery(e) {
			l.deadLetters.add(e, ReasonMaxDelivery, l.maxDeliveryDescription())
		}
	case DeadLetter:
		l.unlock(e)
		l.deadLetters.add(e, s.DeadLetterReason, s.DeadLetterErrorDescription)
	}
}

// RenewLocks extends all locks to LockDuration from now or, when one of them is lost, none. It says
// until when each holds. Errors: ErrLockLost; in a session queue, where the lock of the session is the
// one to renew, ErrLockedBySession; ErrClosed.
func (q *Queue) RenewLocks(ts []LockToken) ([]time.Time, error) {
	now, err := q.enter()
	if err != nil {
		return nil, err
	}
	defer q.leave(now)
	return q.locks.renew(ts, now)
}

// Complete removes the message. Errors: ErrLockLost, ErrClosed.
func (q *Queue) Complete(t LockToken) error {
	return cmp.Or(q.Settle(Settlement{Outcome: Complete}, t)...)
}

// Release gives the message back to its original place as if it had never been delivered. Errors:
// ErrLockLost, ErrClosed.
func (q *Queue) Release(t LockToken) error {
	return cmp.Or(q.Settle(Settlement{Outcome: Release}, t)...)
}
