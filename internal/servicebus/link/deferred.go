// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
)

// A Lock is the token of one delivery.
type Lock amqp.UUID

// TakeDeferred locks the deferred message with that number. In an entity that requires sessions its
// session has to be locked by a Receiver meanwhile, and named. ok is false where the message is not
// there to be had: gone, locked by somebody else, or expired, which the broker notices only now and
// acts upon. After an error the Peeker is closed.
func (p *Peeker) TakeDeferred(ctx context.Context, number int64, session *string) (lock Lock, ok bool, err error) {
	request := map[string]any{
		"sequence-numbers":     []int64{number},
		"receiver-settle-mode": uint32(1), // under lock
	}
	if session != nil {
		request["session-id"] = *session
	}
	reply, err := p.call(ctx, "com.microsoft:receive-by-sequence-number", request, conditionMessageNotFound, ConditionSessionLost)
	if reply == nil || err != nil {
		return Lock{}, false, err
	}
	body, _ := reply.Value.(map[string]any)
	list, _ := body["messages"].([]any)
	if len(list) == 0 {
		return Lock{}, false, nil
	}
	entry, _ := list[0].(map[string]any)
	token, isUUID := entry["lock-token"].(amqp.UUID)
	if !isUUID {
		p.Close(ctx)
		return Lock{}, false, fmt.Errorf("link: deferred message %d of %s came without a lock token", number, p.entity)
	}
	return Lock(token), true, nil
}

// DeadLetter moves the message under that lock to the dead-letter queue, with a reason and a
// description. session is as in TakeDeferred. ok is false where the lock is no more. After an error
// the Peeker is closed.
func (p *Peeker) DeadLetter(ctx context.Context, lock Lock, session *string, reason, description string) (ok bool, err error) {
	request := map[string]any{
		"disposition-status":     "suspended",
		"lock-tokens":            []amqp.UUID{amqp.UUID(lock)},
		"deadletter-reason":      reason,
		"deadletter-description": description,
	}
	if session != nil {
		request["session-id"] = *session
	}
	reply, err := p.call(ctx, "com.microsoft:update-disposition", request, ConditionLockLost, ConditionSessionLost)
	return reply != nil && err == nil, err
}
