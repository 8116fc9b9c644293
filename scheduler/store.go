// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"overdue/internal/redisstore"
	"overdue/scheduler/index"
)

// A store keeps companions until they are due where the monitor queue cannot: its tier has no
// scheduled messages.
type store interface {
	// Put returns when all items are kept, or with why they may not be. What is kept under an id
	// already stays as it is.
	Put(ctx context.Context, items []redisstore.Item) error
	// Withdraw forgets companions that nobody has claimed, and returns the ids of those it
	// has found.
	Withdraw(ctx context.Context, ids []string) (withdrawn []string, err error)
}

// withdraw is round for what the store keeps, which finds companions by their ids.
func (c *canceller) withdraw(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.s.cfg.WriteTimeout)
	defer cancel()
	waiting := c.waiting
	c.waiting = nil
	for part := range slices.Chunk(waiting, cancelBatch) {
		by := make(map[string]index.Needless, len(part))
		for _, w := range part {
			by[w.ID.String()] = w
		}
		withdrawn, err := c.s.cfg.Store.Withdraw(ctx, slices.Collect(maps.Keys(by)))
		for _, id := range withdrawn {
			c.cancelled(by[id])
		}
		n += len(withdrawn)
		if err != nil { // they become due
			return n, fmt.Errorf("scheduler: cancel companions in the companion store: %w", err)
		}
	}
	return n, nil
}
