// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
)

const operationRenew = "com.microsoft:renew-lock"

// renewBatch bounds the locks of one request.
const renewBatch = 100

// LockOf returns the lock of a message that a Receiver has taken. The broker writes the token as
// the delivery tag, as .NET orders the bytes of a GUID (azservicebus, lockTokenFromMessageTag).
func LockOf(m *amqp.Message) (lock Lock, ok bool) {
	if len(m.DeliveryTag) != len(lock) {
		return Lock{}, false
	}
	t := m.DeliveryTag
	copy(lock[:], t)
	lock[0], lock[1], lock[2], lock[3] = t[3], t[2], t[1], t[0]
	lock[4], lock[5], lock[6], lock[7] = t[5], t[4], t[7], t[6]
	return lock, true
}

// RenewLocks renews locks of the entity, whichever link they came over. until has the instants at
// which they lapse now, by the broker's clock; the zero time for a lock that is no more. It also
// returns how many requests that took. After an error the Peeker is closed.
func (p *Peeker) RenewLocks(ctx context.Context, locks []Lock) (until []time.Time, requests int, err error) {
	until = make([]time.Time, len(locks))
	var batches [][]int
	for i := range locks {
		if i%renewBatch == 0 {
			batches = append(batches, nil)
		}
		batches[len(batches)-1] = append(batches[len(batches)-1], i)
	}
	// A request with a lock that is no more renews none: those of its locks are asked for one by one.
	alone, err := p.renew(ctx, locks, batches, until)
	requests = len(batches)
	if err != nil || len(alone) == 0 {
		return until, requests, err
	}
	_, err = p.renew(ctx, locks, alone, until)
	return until, requests + len(alone), err
}

// renew makes one request for each batch, which are indexes of locks. again are the locks of
// batches that the broker has refused, one by one.
func (p *Peeker) renew(ctx context.Context, locks []Lock, batches [][]int, until []time.Time) (again [][]int, err error) {
	requests := make([]any, len(batches))
	for i, batch := range batches {
		tokens := make([]amqp.UUID, len(batch))
		for k, at := range batch {
			tokens[k] = amqp.UUID(locks[at])
		}
		requests[i] = map[string]any{"lock-tokens": tokens}
	}
	answered := make([]bool, len(batches))
	err = p.callEach(ctx, operationRenew, requests, func(i int, reply *amqp.Message) error {
		answered[i] = true
		body, _ := reply.Value.(map[string]any)
		times, _ := body["expirations"].([]time.Time)
		if len(times) != len(batches[i]) {
			return fmt.Errorf("%d locks were renewed of %d", len(times), len(batches[i]))
		}
		for k, at := range batches[i] {
			until[at] = times[k]
		}
		return nil
	}, ConditionLockLost, conditionMessageNotFound)
	if err != nil {
		return nil, err
	}
	for i, batch := range batches {
		if answered[i] || len(batch) == 1 {
			continue
		}
		for _, at := range batch {
			again = append(again, []int{at})
		}
	}
	return again, nil
}
