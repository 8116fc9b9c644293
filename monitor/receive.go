// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"

	"github.com/Azure/go-amqp"
	"go.uber.org/zap"
)

const (
	// creditWindow bounds the companions that are on their way to the worker.
	creditWindow = 500
	// claimEvery is how often the right to use the monitor queue is renewed while nothing
	// comes.
	claimEvery = time.Minute
	// yieldAfter is how long nothing comes before a worker gives way: one gets all that is due together.
	yieldAfter = 20 * time.Millisecond
	// settleTime bounds one settlement of a companion.
	settleTime = 10 * time.Second
)

// receive takes companions from one link until it fails or ctx ends. The receiver of the SDK
// would batch companions for a while, and could not release the ones on their way at a stop.
func (w *Worker) receive(ctx, work context.Context) error {
	r, err := w.cfg.Links.Receiver(ctx, w.cfg.MonitorQueue)
	if err != nil {
		return err
	}
	if !w.attached.Swap(true) {
		w.log.Info("monitor queue attached", zap.String("monitor_queue", w.cfg.MonitorQueue))
	}
	credit := 0
	leave := func() {
		for range credit {
			<-w.room
		}
	}
	defer leave()
	for {
		if credit < creditWindow/2 {
			n, err := w.takeRoom(ctx, creditWindow-credit, credit == 0)
			if err != nil {
				return w.retire(ctx, work, r, err)
			}
			if n > 0 {
				credit += n
				if err := r.Grant(uint32(n)); err != nil {
					return w.retire(ctx, work, r, err)
				}
			}
			if err := r.Claim(ctx); err != nil {
				return w.retire(ctx, work, r, err)
			}
		}
		m, err := r.Receive(ctx, claimEvery)
		if err != nil {
			return w.retire(ctx, work, r, fmt.Errorf("monitor: receive from %s: %w", w.cfg.MonitorQueue, err))
		}
		if m == nil {
			if err := r.Claim(ctx); err != nil {
				return w.retire(ctx, work, r, err)
			}
			continue
		}
		take := func(m *amqp.Message) {
			credit--
			w.metrics.operation(operations.Receive, 1)
			l := &queueLease{w: w, link: r, message: m}
			w.clock.observe(l.enqueuedTime())
			w.renewer.Hold(m)
			w.take(work, l)
		}
		take(m)
		full, yields := w.watching.Load() > maxWatched, w.yielding.take()
		if full || yields {
			for yields && m != nil {
				if m, err = r.Receive(ctx, yieldAfter); m != nil {
					take(m)
				}
			}
			if err := errors.Join(err, r.Drain(ctx)); err != nil {
				return w.retire(ctx, work, r, err)
			}
			for m := r.Prefetched(); m != nil; m = r.Prefetched() {
				take(m)
			}
			leave()
			credit = 0
			w.awaitEase(ctx)
		}
	}
}

// awaitEase waits while too many messages are in hand. The others stay on the monitor queue, where
// any worker can receive them.
func (w *Worker) awaitEase(ctx context.Context) {
	for w.watching.Load() > maxWatched && ctx.Err() == nil {
		w.log.Debug("no companions are received while events wait for their sinks")
		select {
		case <-w.eased:
		case <-ctx.Done():
		}
	}
}

// takeRoom reserves room for up to n companions. With wait it waits for at least one.
func (w *Worker) takeRoom(ctx context.Context, n int, wait bool) (taken int, err error) {
	if wait {
		select {
		case w.room <- struct{}{}:
			taken++
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	for taken < n {
		select {
		case w.room <- struct{}{}:
			taken++
		default:
			return taken, nil
		}
	}
	return taken, nil
}

// retire ends the use of a link. At a stop it takes back the credit and releases the companions
// that came for it, so that another worker gets them at once. The link stays open for
// settlements. Otherwise it closes the link: companions in hand come back when their locks
// lapse, and are settled then without a second notification.
func (w *Worker) retire(ctx, work context.Context, r *link.Receiver, cause error) error {
	if ctx.Err() == nil {
		r.Close(work)
		return cause
	}
	w.last = r
	_, err := r.GiveBack(work) // when it fails the link is gone, and its credit with it
	return errors.Join(cause, err)
}

// A lease is a companion or note that only this worker has. It is settled once.
type lease interface {
	id() string
	contentType() string
	body() []byte
	enqueuedTime() time.Time // by the broker's clock: an instant that has passed, just now mostly

	complete(ctx context.Context) error
	// handBack gives it to whichever worker is next, at once and as it was.
	handBack(ctx context.Context) error
	// deadLetter puts it where an operator finds it.
	deadLetter(ctx context.Context, reason, description string) error
}

// queueLease is a locked message of the monitor queue. It is settled on the link that it came
// on.
type queueLease struct {
	w       *Worker
	link    *link.Receiver
	message *amqp.Message
}

// newRenewer makes what renews the locks of companions in hand, for as long as they are in hand.
// Without it, a companion whose events wait in line would come back meanwhile.
func (w *Worker) newRenewer() *link.Renewer {
	return w.cfg.Links.Renewer(w.cfg.MonitorQueue, link.RenewerConfig{
		Now:     w.latest,
		Renewed: func(requests int) { w.metrics.operation(operations.Renew, requests) },
		Failed: func(n int, err error) {
			w.log.Debug("locks of companions not renewed", zap.Int("companions", n), zap.Error(err))
		},
		Lost: func(n int) { w.log.Warn("locks of companions lost, they come back", zap.Int("companions", n)) },
	})
}

// startRenewing renews locks until stop is called.
func (w *Worker) startRenewing(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.renewer.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// letGo makes room for another lease in place of l, and stops renewing its lock: an l that was not
// settled comes back when that lapses.
func (w *Worker) letGo(l lease) {
	if l, ok := l.(*queueLease); ok {
		w.renewer.Forget(l.message)
	}
	<-w.room
}

func (l *queueLease) id() string {
	if l.message.Properties == nil {
		return ""
	}
	return fmt.Sprint(l.message.Properties.MessageID)
}

func (l *queueLease) contentType() string {
	if l.message.Properties == nil || l.message.Properties.ContentType == nil {
		return ""
	}
	return *l.message.Properties.ContentType
}

func (l *queueLease) enqueuedTime() time.Time {
	t, _ := l.message.Annotations["x-opt-enqueued-time"].(time.Time)
	return t
}

func (l *queueLease) body() []byte { return l.message.GetData() }

// settling bounds a settlement. The lock of what is being settled is not renewed.
func (l *queueLease) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	l.w.renewer.Forget(l.message)
	return context.WithTimeout(ctx, settleTime)
}

func (l *queueLease) complete(ctx context.Context) error {
	ctx, cancel := l.settling(ctx)
	defer cancel()
	l.w.metrics.operation(operations.Complete, 1)
	return l.link.Complete(ctx, l.message)
}

func (l *queueLease) handBack(ctx context.Context) error {
	ctx, cancel := l.settling(ctx)
	defer cancel()
	l.w.metrics.operation(operations.Release, 1)
	return l.link.Release(ctx, l.message)
}

func (l *queueLease) deadLetter(ctx context.Context, reason, description string) error {
	ctx, cancel := l.settling(ctx)
	defer cancel()
	l.w.metrics.operation(operations.DeadLetter, 1)
	return l.link.DeadLetter(ctx, l.message, reason, description)
}
