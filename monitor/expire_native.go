// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
)

// nudge makes the broker expire messages whose time to live has passed. It grants one credit,
// which makes a lazy broker clear away expired messages, and takes back the credit if it was
// not used. It releases a live message that comes for it, which changes nothing about that
// message. It does not wait for a message.
//
// It is not documented whether one receive clears away all expired messages, or only those
// before the first live one. So a check follows every nudge.
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
		wt.locked = first > wt.want.Number && !e.settings.partitioned && !e.work.Cursor
	}
	return nil
}
