// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"time"

	"overdue/internal/amqp"
)

// A Lock is the token of one delivery.
type Lock amqp.UUID

// lockOf returns the lock that a delivery has. The broker writes the token as the delivery tag, as
// .NET orders the bytes of a GUID (azservicebus, lockTokenFromMessageTag).
func lockOf(t []byte) (lock Lock) {
	if len(t) != len(lock) {
		return Lock{}
	}
	copy(lock[:], t)
	lock[0], lock[1], lock[2], lock[3] = t[3], t[2], t[1], t[0]
	lock[4], lock[5], lock[6], lock[7] = t[5], t[4], t[7], t[6]
	return lock
}

// TakeDeferred locks the deferred message with that number. In an entity that requires sessions its
// session has to be locked by a Receiver meanwhile, and named. until is the end of the lock by the
// broker's clock; zero: unknown. ok is false where the message is not
// there to be had: gone, locked by somebody else, or expired, which the broker notices only now and
// acts upon. After an error the Peeker is closed.
func (p *Peeker) TakeDeferred(ctx context.Context, number int64, session *string) (lock Lock, until time.Time, ok bool, err error) {
	request := amqp.Map{
		{Key: "sequence-numbers", Value: amqp.Array{number}},
		{Key: "receiver-settle-mode", Value: uint32(1)}, // under lock
	}
	if session != nil {
		request = append(request, amqp.Pair{Key: "session-id", Value: *session})
	}
	err = p.call(ctx, "com.microsoft:receive-by-sequence-number", []amqp.Map{request}, func(_ int, body amqp.Raw) error {
		for entry, err := range listed(body) {
			if err != nil {
				return err
			}
			r, _ := amqp.MapLookup(entry, "lock-token")
			token, isUUID := r.Value().(amqp.UUID)
			if !isUUID {
				return fmt.Errorf("link: deferred message %d came without a lock token", number)
			}
			lock, ok = Lock(token), true
			r, _ = amqp.MapLookup(entry, "message")
			if encoded := r.Binary(); r.Err() == nil {
				raw := beforeBody(encoded)
				until = annotated(raw.MessageAnnotations, "x-opt-locked-until")
			}
			return nil
		}
		return nil
	}, ConditionMessageNotFound, ConditionSessionLost)
	return lock, until, ok && err == nil, err
}

// DeadLetter moves the message under that lock to the dead-letter queue, with a reason and a
// description. session is as in TakeDeferred. ok is false where the lock is no more. After an error
// the Peeker is closed.
func (p *Peeker) DeadLetter(ctx context.Context, lock Lock, session *string, reason, description string) (ok bool, err error) {
	return p.settle(ctx, lock, session, amqp.Map{
		{Key: "disposition-status", Value: "suspended"},
		{Key: "deadletter-reason", Value: reason},
		{Key: "deadletter-description", Value: description},
	})
}

// DeferAgain gives back a deferred message, which stays deferred. session is as in TakeDeferred. ok
// is false where the lock is no more. After an error the Peeker is closed.
func (p *Peeker) DeferAgain(ctx context.Context, lock Lock, session *string) (ok bool, err error) {
	return p.settle(ctx, lock, session, amqp.Map{{Key: "disposition-status", Value: "defered"}}) // as the wire spells it
}

// settle sends a disposition for the message under that lock.
func (p *Peeker) settle(ctx context.Context, lock Lock, session *string, request amqp.Map) (ok bool, err error) {
	request = append(request, amqp.Pair{Key: "lock-tokens", Value: amqp.Array{amqp.UUID(lock)}})
	if session != nil {
		request = append(request, amqp.Pair{Key: "session-id", Value: *session})
	}
	err = p.call(ctx, "com.microsoft:update-disposition", []amqp.Map{request}, func(int, amqp.Raw) error {
		ok = true
		return nil
	}, ConditionLockLost, ConditionSessionLost)
	return ok && err == nil, err
}
