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

const (
	// storeMost and storeBytes bound what is put at once.
	storeMost  = 500
	storeBytes = 1 << 20
)

// put is send for what the store keeps.
func (s *Scheduler) put(groups []*group) (n int, err error) {
	var items []redisstore.Item
	for size := 0; n < min(len(groups), storeMost) && size < storeBytes; n++ {
		g := groups[n]
		body, id, err := g.marshal()
		if err != nil && n == 0 {
			return 1, err
		}
		if err != nil {
			break // those before it are kept now, then its error is returned alone
		}
		items = append(items, redisstore.Item{ID: id, Due: g.c.Due.UTC(), ContentType: contentType, Subject: g.c.kind(), Body: body})
		size += len(body)
	}
	// The callers' contexts do not reach it, as in send.
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.WriteTimeout)
	defer cancel()
	if err := s.cfg.Store.Put(ctx, items); err != nil {
		return n, fmt.Errorf("scheduler: write to the companion store: %w", err)
	}
	return n, nil
}

// withdraw is round for what the store keeps, which finds companions by their ids.
func (c *canceller) withdraw(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.s.cfg.WriteTimeout)
	defer cancel()
	waiting := c.waiting
	c.waiting = nil
	for part := range slices.Chunk(waiting, storeMost) {
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
