// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"time"
)

const (
	historyTime = 2 * time.Second // bound of a question: an operator waits for those that read
	// MostMissed bounds the missed deadlines that the fleet keeps: all together fit into one answer.
	MostMissed = 2000
	// MostRecord bounds each of them, in bytes.
	MostRecord = 8 << 10
)

// History is the latest missed deadlines of the fleet, as the processes wrote them.
type History struct{ c *circuit }

// History is that of the fleet.
func (s *Store) History() *History {
	list := s.key("h", "trial", "missed")
	return &History{s.circuit("history", historyTime,
		func(ctx context.Context) error { return deliver(ctx, s.client, list, 1, trialLife, []string{"x"}) },
		func(ctx context.Context) error { _, err := latest(ctx, s.client, list, 1); return err },
	)}
}

func (h *History) missed() string { return h.c.s.key("h", "missed") }

// Add adds missed deadlines, which are kept for a while.
func (h *History) Add(ctx context.Context, missed []string, keep time.Duration) error {
	return h.c.do(ctx, func(ctx context.Context) error {
		return deliver(ctx, h.c.s.client, h.missed(), MostMissed, keep, missed[max(0, len(missed)-MostMissed):])
	})
}

// Missed returns the latest missed deadlines, the oldest first.
func (h *History) Missed(ctx context.Context) (records []string, err error) {
	err = h.c.do(ctx, func(ctx context.Context) (err error) {
		records, err = latest(ctx, h.c.s.client, h.missed(), MostMissed)
		return err
	})
	return records, err
}
