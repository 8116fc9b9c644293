// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"sync/atomic"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"

	"go.uber.org/zap"
)

// lockView is what is known of peeks and locked messages: "Message browsing" states that a peek
// shows them. The worker tries it once, on the first companion, which it has locked itself.
type lockView struct {
	tried  atomic.Bool
	hidden atomic.Bool
}

// HidesLocked reports whether a peek does not show a message that somebody has locked.
func (in *Intake) HidesLocked() bool { return in.locks.hidden.Load() }

// tryLocked peeks at m, which is locked. It tries the next one if that fails. A peek by number may
// not find a message of a partitioned queue.
func (s *stream) tryLocked(ctx context.Context, m *link.ReceivedMessage) {
	in := s.in
	if partitioned := m.SequenceNumber>>48 != 0; partitioned || !in.locks.tried.CompareAndSwap(false, true) {
		return
	}
	page, err := s.peekAt(ctx, m.SequenceNumber)
	if err != nil {
		in.locks.tried.Store(false)
		in.log.Debug("no peek at a locked companion", zap.String("monitor_queue", s.name), zap.Error(err))
		return
	}
	if len(page) == 0 || page[0].SequenceNumber != m.SequenceNumber {
		in.locks.hidden.Store(true)
		in.log.Warn("this namespace does not show locked messages to a peek: messages that are gone are checked again until their locks may have lapsed")
	}
}

func (s *stream) peekAt(ctx context.Context, number int64) ([]*link.Message, error) {
	p, err := s.in.cfg.Links.Peeker(ctx, s.name)
	if err != nil {
		return nil, err
	}
	defer p.Close(ctx)
	s.in.cfg.Operations.Add(operations.Probe, 1)
	pages, err := p.PeekEach(ctx, []link.PeekRange{{From: number, N: 1}})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}
