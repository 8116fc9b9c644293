// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"time"

	"overdue/internal/amqp"
)

const operationRenew = "com.microsoft:renew-lock"

// renewBatch bounds the locks of one request.
const renewBatch = 100

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
	// A request with a lock that is no more renews none: those of its locks are asked for one by
	// one.
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
	requests := make([]amqp.Map, len(batches))
	for i, batch := range batches {
		tokens := make(amqp.Array, len(batch))
		for k, at := range batch {
			tokens[k] = amqp.UUID(locks[at])
		}
		requests[i] = amqp.Map{{Key: "lock-tokens", Value: tokens}}
	}
	answered := make([]bool, len(batches))
	err = p.call(ctx, operationRenew, requests, func(i int, body amqp.Raw) error {
		answered[i] = true
		r, _ := amqp.MapLookup(body, "expirations")
		times, _ := r.Value().(amqp.Array)
		if len(times) != len(batches[i]) {
			return fmt.Errorf("%d locks were renewed of %d", len(times), len(batches[i]))
		}
		for k, at := range batches[i] {
			t, ok := times[k].(amqp.Timestamp)
			if !ok {
				return fmt.Errorf("a lock was renewed until %T", times[k])
			}
			until[at] = t.Time()
		}
		return nil
	}, ConditionLockLost, ConditionMessageNotFound)
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
