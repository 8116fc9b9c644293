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
// first live message, is not documented. So a nudge is always followed by a look.
func (e *entity) nudge(ctx context.Context, l line) error {
	r, err := e.receiver(ctx, l)
	if err != nil {
		return fmt.Errorf("monitor: nudge %s: %w", e.name, err)
	}
	if r == nil {
		return nil
	}
	if err := e.w.nudgeOver(ctx, r); err != nil {
		return fmt.Errorf("monitor: nudge %s: %w", e.name, err)
	}
	return nil
}
