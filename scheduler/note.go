// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"time"

	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/scheduler/index"
)

// A Note is something else than a companion that has to be there at its time, whatever becomes of
// this process. The monitor passes it to the component that registered its content type.
type Note struct {
	ID          string    // of its message, other than that of every other note; "" = derived from the rest
	Due         time.Time // by the broker's clock
	ContentType string
	Subject     string
	Body        []byte
}

// Keep returns when the first monitor queue, or the companion store, has accepted n, or with the
// error that kept it from doing so.
func (s *Scheduler) Keep(ctx context.Context, n Note) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("scheduler: keep a note: %w", ErrClosed)
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	if n.ID == "" {
		sum := sha256.Sum256(strconv.AppendInt(slices.Clone(n.Body), n.Due.UnixNano(), 10))
		n.ID = index.ID(sum[:16]).String()
	}
	err := s.keep(ctx, n)
	if s.cfg.Written != nil {
		s.cfg.Written(1, err)
	}
	return err
}

func (s *Scheduler) keep(ctx context.Context, n Note) error {
	if s.cfg.Store != nil {
		item := redisstore.Item{ID: n.ID, Due: n.Due.UTC(), ContentType: n.ContentType, Subject: n.Subject, Body: n.Body, Note: true}
		if err := s.cfg.Store.Put(ctx, []redisstore.Item{item}); err != nil {
			return fmt.Errorf("scheduler: write to the companion store: %w", err)
		}
		return nil
	}
	var b link.Batch
	b.Add(&link.ScheduledMessage{MessageID: n.ID, Subject: n.Subject, ContentType: n.ContentType, Due: n.Due, Body: n.Body})
	first := s.lanes[0]
	if err := first.companions.Send(ctx, &b); err != nil {
		return fmt.Errorf("scheduler: write to monitor queue %s: %w", first.queue, err)
	}
	return nil
}
