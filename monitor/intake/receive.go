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
	lost     time.Time // of the last link, by the clock of the broker; zero: none was
	deleted  bool      // the queue did not exist since
	link     *link.Receiver
	credit   int // on the link
}

// newQueue makes a queue. Its renewer renews the locks of companions for as long as they are in
// hand. Without it, a companion whose events wait in line would come back meanwhile.
func (in *Intake) newQueue(name string) *queue {
	return &queue{
		in:   in,
		name: name,
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

// receive takes companions from one link until it fails or ctx ends. The receiver of the SDK would
// batch companions for a while, and could not release the ones on their way at a stop.
func (q *queue) receive(ctx, work context.Context) (err error) {
	if q.link, err = q.in.cfg.Links.Receiver(ctx, q.name); err != nil {
		return err
	}
	q.credit = 0
	q.attached.Store(true)
	q.in.log.Info("monitor queue attached", zap.String("monitor_queue", q.name))
	if q.deleted {
		q.in.log.Warn("monitor queue was deleted and recreated: queues are read for messages without companions", zap.String("monitor_queue", q.name))
		q.deleted = false
		q.in.cfg.Recreated(q.name, q.lost)
	}
	for err == nil {
		err = q.next(ctx, work)
	}
	if ctx.Err() == nil { // companions in hand come back, and are settled without a second notification
		q.link.Close(work)
		return err
	}
	// At a stop, another worker gets at once what came for the credit. The link stays for settlements.
	_, gone := q.link.GiveBack(work) // the link, and its credit with it
	return errors.Join(err, gone)
}

// next takes one companion, or renews the right to use the queue if none comes for a minute.
func (q *queue) next(ctx, work context.Context) error {
	if err := q.grant(ctx); err != nil {
		return err
	}
	m, err := q.link.Receive(ctx, time.Minute)
	switch {
	case err != nil:
		return fmt.Errorf("monitor: receive from %s: %w", q.name, err)
	case m == nil:
		return q.link.Claim(ctx)
	}
	q.take(work, m)
	mustYield := q.name == q.in.cfg.Queues[0] && q.in.yield.Swap(false) // digests are on the first queue
	if mustYield || q.in.isFull() {
		return q.giveWay(ctx, work)
	}
	return nil
}

// grant grants credit when half of it is used up.
func (q *queue) grant(ctx context.Context) error {
	window := q.in.window()
	if q.credit >= (window+1)/2 {
		return nil
	}
	if err := q.link.Grant(ctx, uint32(window-q.credit)); err != nil {
		return err
	}
	q.credit = window
	return q.link.Claim(ctx)
}

// giveWay takes the credit back, and waits while too much is in hand.
func (q *queue) giveWay(ctx, work context.Context) error {
	if err := q.link.Drain(ctx); err != nil {
		return err
	}
	for m := q.link.Prefetched(); m != nil; m = q.link.Prefetched() {
		q.take(work, m)
	}
	q.credit = 0
	q.in.awaitRoom(ctx)
	return nil
}

// take hands a message to the worker.
func (q *queue) take(work context.Context, m *link.ReceivedMessage) {
	q.credit--
	q.in.cfg.Operations.Add(operations.Receive, 1)
	q.in.cfg.Clock.Observe(m.EnqueuedTime)
	q.renewer.Hold(m)
	from := q.link // the link may be another one by then
	q.in.take(work, &Lease{
		ID:          m.MessageID,
		Queue:       q.name,
		ContentType: m.ContentType,
		Body:        m.Body(),
		settle: func(ctx context.Context, s settlement) error {
			return q.settle(ctx, from, m, s)
		},
	})
}

// settle settles a message on the link that it came on. Its lock is not renewed meanwhile.
func (q *queue) settle(ctx context.Context, from *link.Receiver, m *link.ReceivedMessage, s settlement) error {
	q.renewer.Forget(m)
	switch s.outcome {
	case completed:
		q.in.cfg.Operations.Add(operations.Complete, 1)
		return from.Complete(ctx, m)
	case handedBack:
		q.in.cfg.Operations.Add(operations.Release, 1)
		return from.Release(ctx, m)
	case deadLettered:
		q.in.cfg.Operations.Add(operations.DeadLetter, 1)
		return from.DeadLetter(ctx, m, s.reason, s.description)
	}
	return nil
}
