// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"

	"go.uber.org/zap"
)

// ReconnectEvery is the interval at which the connection is tried. With the delay between two dials
// it is well below a second, see TestMissedDeadlinesAfterAnOutage.
const ReconnectEvery = 250 * time.Millisecond

// A queue is one monitor queue that companions are received from. All else is shared by the queues,
// so that it makes no difference which one a companion came from.
type queue struct {
	in       *Intake
	name     string
	former   bool          // it is only emptied: see ReceiveAlso
	renewer  *link.Renewer // of the locks of companions in hand
	attached atomic.Bool
	lost     time.Time      // of the last link, by the clock of the broker; zero: none was
	deleted  bool           // the queue did not exist since
	last     *link.Receiver // the link at the stop
}

// newQueue makes a queue. Its renewer renews the locks of companions for as long as they are in
// hand. Without it, a companion whose events wait in line would come back meanwhile.
func (in *Intake) newQueue(name string) *queue {
	renewer := in.cfg.Links.Renewer(name, link.RenewerConfig{
		Now:     in.cfg.Clock.Latest,
		Renewed: func(requests int) { in.cfg.Operations.Add(operations.Renew, requests) },
		Failed: func(n int, err error) {
			in.log.Debug("locks of companions not renewed", zap.Int("companions", n), zap.Error(err))
		},
		Lost: func(n int) { in.log.Warn("locks of companions lost, they come back", zap.Int("companions", n)) },
	})
	return &queue{
		in:      in,
		name:    name,
		renewer: renewer,
	}
}

// run receives companions until ctx ends.
func (q *queue) run(ctx, work context.Context) {
	log := q.in.log.With(zap.String("monitor_queue", q.name))
	for first := true; ctx.Err() == nil; {
		err := q.receive(ctx, work)
		attached := q.attached.Swap(false)
		if ctx.Err() != nil {
			break
		}
		if attached {
			q.lost = q.in.cfg.Clock.Latest()
		}
		q.deleted = !q.lost.IsZero() && (q.deleted || link.Condition(err) == link.ConditionNotFound)
		say := log.Debug
		if attached || first {
			say, first = log.Warn, false // once per loss, not per attempt
		}
		if q.former && link.Condition(err) == link.ConditionNotFound {
			log.Info("former monitor queue is gone", zap.Error(err))
			q.in.remove(q)
			return
		}
		say("monitor queue unreachable: no deadline is checked", zap.Duration("retry_in", ReconnectEvery), zap.Error(err))
		select {
		case <-time.After(ReconnectEvery):
		case <-ctx.Done():
		}
	}
}

// receive takes companions from one link until it fails or ctx ends. The receiver of the SDK
// would batch companions for a while, and could not release the ones on their way at a stop.
func (q *queue) receive(ctx, work context.Context) error {
	in := q.in
	r, err := in.cfg.Links.Receiver(ctx, q.name)
	if err != nil {
		return err
	}
	if !q.attached.Swap(true) {
		in.log.Info("monitor queue attached", zap.String("monitor_queue", q.name))
	}
	if q.deleted {
		in.log.Warn("monitor queue was deleted and recreated: queues are read for messages without companions", zap.String("monitor_queue", q.name))
		q.deleted = false
		in.cfg.Recreated(q.name, q.lost)
	}
	s := stream{queue: q, link: r}
	for err == nil {
		err = s.next(ctx, work)
	}
	return q.retire(ctx, work, r, err)
}

// A stream is the use of one link of a queue.
type stream struct {
	*queue
	link   *link.Receiver
	credit int // on the link
}

// next takes one companion, or renews the right to use the queue if none comes for a minute.
func (s *stream) next(ctx, work context.Context) error {
	if err := s.grant(ctx); err != nil {
		return err
	}
	m, err := s.link.Receive(ctx, time.Minute)
	switch {
	case err != nil:
		return fmt.Errorf("monitor: receive from %s: %w", s.name, err)
	case m == nil:
		return s.link.Claim(ctx)
	}
	s.take(work, m)
	mustYield := s.name == s.in.cfg.Queues[0] && s.in.yield.Swap(false) // digests are on the first queue
	if mustYield || s.in.isFull() {
		return s.giveWay(ctx, work)
	}
	return nil
}

// grant grants credit when half of it is used up.
func (s *stream) grant(ctx context.Context) error {
	window := s.in.window()
	if s.credit >= (window+1)/2 {
		return nil
	}
	if err := s.link.Grant(ctx, uint32(window-s.credit)); err != nil {
		return err
	}
	s.credit = window
	return s.link.Claim(ctx)
}

// giveWay takes the credit back, and waits while too much is in hand.
func (s *stream) giveWay(ctx, work context.Context) error {
	if err := s.link.Drain(ctx); err != nil {
		return err
	}
	for m := s.link.Prefetched(); m != nil; m = s.link.Prefetched() {
		s.take(work, m)
	}
	s.credit = 0
	s.in.awaitRoom(ctx)
	return nil
}

// take hands a message to the worker.
func (s *stream) take(work context.Context, m *link.ReceivedMessage) {
	s.credit--
	s.in.cfg.Operations.Add(operations.Receive, 1)
	s.in.cfg.Clock.Observe(m.EnqueuedTime)
	s.renewer.Hold(m)
	s.in.take(work, &Lease{
		ID:          m.MessageID,
		Queue:       s.name,
		ContentType: m.ContentType,
		Body:        m.Body(),
		item: &lockedMessage{
			in:      s.in,
			link:    s.link,
			message: m,
			renewer: s.renewer,
		},
	})
}

// retire ends the use of a link. At a stop it takes back the credit and releases the companions
// that came for it, so that another worker gets them at once. The link stays open for
// settlements. Otherwise it closes the link: companions in hand come back when their locks
// lapse, and are settled then without a second notification.
func (q *queue) retire(ctx, work context.Context, r *link.Receiver, cause error) error {
	if ctx.Err() == nil {
		r.Close(work)
		return cause
	}
	q.last = r
	_, err := r.GiveBack(work) // when it fails the link is gone, and its credit with it
	return errors.Join(cause, err)
}
