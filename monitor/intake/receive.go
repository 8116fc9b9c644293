// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"

	"go.uber.org/zap"
)

// A queue is the feed of one monitor queue. The receiver of the SDK would batch companions for a
// while, and could not release the ones on their way at a stop.
type queue struct {
	in      *Intake
	renewer *link.Renewer // of the locks of companions in hand
	link    *link.Receiver
	credit  int       // on the link
	lost    time.Time // of the last link, by the clock of the broker; zero: none was
	deleted bool      // the queue did not exist since
}

// newQueue makes a queue. Its renewer renews the locks of companions for as long as they are in
// hand. Without it, a companion whose events wait in line would come back meanwhile.
func (in *Intake) newQueue(name string) *queue {
	return &queue{
		in: in,
		renewer: in.cfg.Links.Renewer(name, link.RenewerConfig{
			Now:     in.cfg.Clock.Latest,
			Renewed: func(requests int) { in.cfg.Operations.Add(operations.Renew, requests) },
			Failed: func(n int, err error) {
				in.log.Debug("locks of companions not renewed", zap.Int("companions", n), zap.Error(err))
			},
			Lost: func(n int) { in.log.Warn("locks of companions lost, they come back", zap.Int("companions", n)) },
		}),
	}
}

func (q *queue) renew(work context.Context) { q.renewer.Run(work) }

// receive takes companions from one link until it fails or ctx ends.
func (q *queue) receive(ctx, work context.Context, s *source) error {
	err := q.attach(ctx, s)
	if err == nil {
		for err == nil {
			err = q.next(ctx, work, s)
		}
		q.lost = q.in.cfg.Clock.Latest()
		if ctx.Err() != nil {
			// At a stop, another worker gets at once what came for the credit. The link stays for settlements,
			// until work ends.
			context.AfterFunc(work, func() { q.link.Close(work) })
			_, gone := q.link.GiveBack(work)
			return errors.Join(err, gone)
		}
		q.link.Close(work) // companions in hand come back, and are settled without a second notification
	}
	q.deleted = q.deleted || !q.lost.IsZero() && link.Condition(err) == link.ConditionNotFound
	return err
}

// attach opens a link.
func (q *queue) attach(ctx context.Context, s *source) (err error) {
	if q.link, err = q.in.cfg.Links.Receiver(ctx, s.name); err != nil {
		return err
	}
	q.credit = 0
	s.attached.Store(true)
	log := q.in.log.With(zap.String("monitor_queue", s.name))
	log.Info("monitor queue attached")
	if q.deleted {
		log.Warn("monitor queue was deleted and recreated: queues are read for messages without companions")
		q.deleted = false
		q.in.cfg.Recreated(s.name, q.lost)
	}
	return nil
}

// next takes one companion, or renews the right to use the queue if none comes for a minute.
func (q *queue) next(ctx, work context.Context, s *source) error {
	if s.mustYield.Swap(false) {
		if err := q.link.Drain(ctx); err != nil {
			return err
		}
		for m := q.link.Prefetched(); m != nil; m = q.link.Prefetched() {
			q.take(work, s, m)
		}
		q.credit = 0
	}
	if err := q.grant(ctx); err != nil {
		return err
	}
	m, err := q.link.Receive(ctx, time.Minute)
	switch {
	case err != nil:
		return fmt.Errorf("monitor: receive from %s: %w", s.name, err)
	case m == nil:
		return q.link.Claim(ctx)
	}
	q.take(work, s, m)
	return nil
}

// grant grants credit when half of it is used up. While too much is in hand it grants none, and
// waits once all is used up.
func (q *queue) grant(ctx context.Context) error {
	window := q.in.window()
	isEnough := q.credit >= (window+1)/2
	switch {
	case q.credit == 0:
		q.in.awaitRoom(ctx)
	case isEnough || q.in.isFull():
		return nil
	}
	if err := q.link.Grant(ctx, uint32(window-q.credit)); err != nil {
		return err
	}
	q.credit = window
	return q.link.Claim(ctx)
}

// take hands a message to the worker. It is settled on the link that it came on, and its lock is not
// renewed meanwhile.
func (q *queue) take(work context.Context, s *source, m *link.ReceivedMessage) {
	q.credit--
	q.in.cfg.Operations.Add(operations.Receive, 1)
	q.in.cfg.Clock.Observe(m.EnqueuedTime)
	q.renewer.Hold(m)
	from := q.link
	q.in.take(work, &Lease{
		ID:          m.MessageID,
		Queue:       s.name,
		ContentType: m.ContentType,
		Body:        m.Body(),
		settle: func(ctx context.Context, st settlement) error {
			q.renewer.Forget(m)
			switch st.outcome {
			case completed:
				q.in.cfg.Operations.Add(operations.Complete, 1)
				return from.Complete(ctx, m)
			case handedBack:
				q.in.cfg.Operations.Add(operations.Release, 1)
				return from.Release(ctx, m)
			case deadLettered:
				q.in.cfg.Operations.Add(operations.DeadLetter, 1)
				return from.DeadLetter(ctx, m, st.reason, st.description)
			}
			return nil
		},
	})
}
