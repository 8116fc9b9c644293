// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"overdue/alert"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// digestType is the content type of a digest on the monitor queue.
const digestType = "application/vnd.overdue.digest+json"

const (
	// unknownSinkMax is how long a digest is left to monitors whose configuration may have its
	// sink. It is longer than a rollout.
	unknownSinkMax = time.Hour
	// A digest is put back until a multiple of a time that doubles from unknownSinkFirst to
	// unknownSinkLast, so that the digests of a group stay together.
	unknownSinkFirst, unknownSinkLast = time.Second, 64 * time.Second
)

// NewOutbox keeps the digests of groups on the monitor queue. When they are due the [Worker]
// that receives one gives it to the groups of its sink, which it knows from [Config].
func NewOutbox(s *scheduler.Scheduler) alert.Outbox { return outbox{s} }

type outbox struct{ s *scheduler.Scheduler }

func (o outbox) Now() time.Time { return o.s.Now().Time }

func (o outbox) Keep(ctx context.Context, due time.Time, d alert.Digest) error {
	return keepDigest(ctx, o.s, due, d)
}

func keepDigest(ctx context.Context, s *scheduler.Scheduler, due time.Time, d alert.Digest) error {
	body, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("monitor: encode digest: %w", err)
	}
	return s.Keep(ctx, scheduler.Note{Due: due, ContentType: digestType, Subject: "digest", Body: body})
}

// digest hands a digest that is due to the groups of its sink.
func (w *Worker) digest(work context.Context, l lease) {
	d, err := alert.ParseDigest(l.body())
	w.running.Add(1) // until it is settled
	end := func(what string, settle func() error) {
		go func() {
			defer w.running.Done()
			defer w.letGo(l)
			if err := settle(); err != nil {
				w.log.Warn("digest not "+what+": it comes back when its lock lapses", zap.String("sink", d.Sink), zap.Error(err))
			}
		}()
	}
	refuse := func(reason string, cause error) {
		end("dead-lettered", func() error { return l.deadLetter(work, reason, cause.Error()) })
	}
	if err != nil {
		w.log.Warn("digest refused: it is kept as a dead letter", zap.String("monitor_queue", w.cfg.MonitorQueue), zap.String("message_id", l.id()), zap.Error(err))
		refuse(reasonMalformed, err)
		return
	}
	groups := w.sinks.Load().groups[d.Sink]
	if groups == nil {
		if due, ok := w.leaveDigest(&d); ok {
			w.yielding.ask()
			end("put back", func() error { return w.putBackDigest(work, l, d, due) })
			return
		}
		w.log.Error("digest undeliverable: it is kept as a dead letter", zap.String("monitor_queue", w.cfg.MonitorQueue), zap.String("sink", d.Sink), zap.Error(errUnknownSink))
		refuse(reasonUndeliverable, fmt.Errorf("%w: %q", errUnknownSink, d.Sink))
		return
	}
	groups.Due(alert.DueDigest{
		Digest: d,
		Done: func(refused error) {
			if refused != nil {
				refuse(reasonUndeliverable, refused)
				return
			}
			end("completed", func() error { return l.complete(work) })
		},
		Release: func() { end("handed back", func() error { return l.handBack(work) }) },
	})
}

// errUnknownSink: the sink of the digest was removed or renamed.
var errUnknownSink = fmt.Errorf("no monitor of the last %v has a sink of that name that takes digests", unknownSinkMax)

// leaveDigest returns until when d, whose sink is unknown here, is left to other monitors. ok
// is false when that has lasted too long.
func (w *Worker) leaveDigest(d *alert.Digest) (until time.Time, ok bool) {
	now := w.clock.now()
	if d.UnknownSince.IsZero() || d.UnknownSince.After(now) { // nobody else's future keeps it for longer
		d.UnknownSince = now
	}
	met, step := now.Sub(d.UnknownSince), unknownSinkFirst
	for 2*step <= min(met, unknownSinkLast) {
		step *= 2
	}
	return now.Truncate(step).Add(step), met < unknownSinkMax
}

// putBackDigest rewrites d, for the worker that receives it when it is due.
func (w *Worker) putBackDigest(ctx context.Context, l lease, d alert.Digest, due time.Time) error {
	w.log.Info("digest left to a monitor that has its sink", zap.String("sink", d.Sink), zap.Time("until", due))
	if err := keepDigest(ctx, w.cfg.Scheduler, due, d); err != nil {
		return err // its lock lapses
	}
	return l.complete(ctx)
}

// yielding is whether a worker should give way to the others that receive from the monitor
// queue, by taking back its credit and granting it again: a broker serves first whose credit is
// the oldest. It is for the goroutine that receives.
type yielding struct {
	asked bool
	last  time.Time
}

func (y *yielding) ask() { y.asked = true }

// take reports whether it is time to, which is once in strangeFirst at most.
func (y *yielding) take() bool {
	if !y.asked || time.Since(y.last) < unknownSinkFirst {
		return false
	}
	y.asked, y.last = false, time.Now()
	return true
}
