// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"

	"overdue/scheduler"
)

// A request is one caller's companion on its way to the monitor queue, or to the disk.
type request struct {
	c    scheduler.Companion
	done chan struct{} // closed when err is final
	err  error
}

func newRequest(c scheduler.Companion) *request { return &request{c: c, done: make(chan struct{})} }

// Scheduled ends the request.
func (r *request) Scheduled(err error) {
	r.err = err
	close(r.done)
}

// over reports whether the request has ended.
func (r *request) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// wait returns what became of the companion.
func (r *request) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("journal: schedule companion for %s: %w", r.c.Entity, context.Cause(ctx))
	}
}
