// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"time"

	"overdue/internal/sblink"
)

// pageSize is how many messages one peek may bring: the most that Service Bus gives
// (servicebus-facts: message-browsing).
const pageSize = 250

// peekTime bounds one peek, the opening of its link included. Every operation of a pass is bounded,
// so that a broker that stalls cannot keep it for ever; the pass is not, or it would begin anew
// again and again on a line that is only slow.
const peekTime = 30 * time.Second

// view peeks at one queue, or at its dead-letter queue. It is for one goroutine.
type view struct {
	links   *sblink.Namespace
	path    string // of the queue or sub-queue
	metrics *metrics
	peeker  *sblink.Peeker // nil until the next peek
	marks   landmarks
	memory  *memory
}

// peek brings up to n messages from sequence number from on. An empty page means that
// there is none; a short one does not, since its size in bytes is bounded too.
func (v *view) peek(ctx context.Context, from int64, n int) ([]*sblink.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	if v.peeker == nil {
		p, err := v.links.Peeker(ctx, v.path)
		if err != nil {
			return nil, fmt.Errorf("monitor: open %s: %w", v.path, err)
		}
		v.peeker = p
	}
	page, err := v.peeker.Peek(ctx, from, n)
	v.metrics.operation("peek", 1)
	if err != nil {
		v.peeker = nil // it has closed itself
		return nil, fmt.Errorf("monitor: peek at %s: %w", v.path, err)
	}
	for _, m := range page {
		if m.SequenceNumber < from {
			return nil, fmt.Errorf("monitor: peek at %s from %d brought number %d", v.path, from, m.SequenceNumber)
		}
		v.memory.add(m.MessageID, m.SequenceNumber)
	}
	if len(page) > 0 {
		for _, m := range []*sblink.Message{page[0], page[len(page)-1]} {
			v.marks.add(mark{m.SequenceNumber, m.EnqueuedTime})
		}
	}
	return page, nil
}

// close gives up the links, so that an idle entity costs none.
func (v *view) close(ctx context.Context) {
	if v.peeker != nil {
		v.peeker.Close(ctx)
		v.peeker = nil
	}
}
