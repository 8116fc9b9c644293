// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
)

// nudge makes the broker expire what has passed its time-to-live: it grants one credit,
// which a lazy broker answers by clearing away what is expired, and takes back what is
// left of it. A live message that comes for the credit is released, which costs it
// nothing. A nudge never waits for a message.
//
// Whether one receive clears away all that is expired, or only what stands before the
// first live message, is not documented. So a nudge is always followed by a check.
func (e *entity) nudge(ctx context.Context, l receiveScope) error {
	r, err := e.receiver(ctx, l)
	if err != nil {
		return fmt.Errorf("monitor: nudge %s: %w", e.name, err)
	}
	if r == nil {
		return nil
	}
	first, err := e.w.nudgeOver(ctx, r)
	if err != nil {
		return fmt.Errorf("monitor: nudge %s: %w", e.name, err)
	}
	for _, wt := range l.watches {
		// The first that is to be had stands behind it: somebody has locked it.
		wt.locked = first > wt.want.number && !e.settings.partitioned && !e.work.cursor
	}
	return nil
}
