// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"overdue/alert"
	"overdue/monitor/intake"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// DigestType is the content type of a digest on the monitor queue.
const DigestType = "application/vnd.overdue.digest+json"

const (
	// unknownSinkMax is how long a digest is left to monitors whose configuration may have its
	// sink. It is longer than a rollout.
	unknownSinkMax = time.Hour
	// A digest is put back until a multiple of a time that doubles from unknownSinkFirst to
	// unknownSinkLast, so that the digests of a group stay together.
	unknownSinkFirst, unknownSinkLast = time.Second, 64 * time.Second
)

// NewOutbox keeps the digests of groups on the monitor queue. When they are due, the worker
// that receives one gives it to the groups of its sink, see [Notifier.Digest].
func NewOutbox(s *scheduler.Scheduler) alert.Outbox { return outbox{s} }

type outbox struct{ s *scheduler.Scheduler }

func (o outbox) Now() time.Time { return o.s.Now().Time }

func (o outbox) Keep(ctx context.Context, due time.Time, d alert.Digest) error {
	return keepDigest(ctx, o.s, due, d)
}

func keepDigest(ctx context.Context, s *scheduler.Scheduler, due time.Time, d alert.Digest) error {
	body, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("notify: encode digest: %w", err)
	}
	return s.Keep(ctx, scheduler.Note{Due: due, ContentType: DigestType, Subject: "digest", Body: body})
}

// Digest hands a digest that is due to the groups of its sink. It calls ended when the lease is
// settled.
func (n *Notifier) Digest(work context.Context, l *intake.Lease, ended func()) {
	d, err := alert.ParseDigest(l.Body)
	end := func(what string, settle func() error) {
		go func() {
			defer ended()
			if err := settle(); err != nil {
				n.log.Warn("digest not "+what+": it comes back when its lock lapses", zap.String("sink", d.Sink), zap.Error(err))
			}
		}()
	}
	refuse := func(reason string, cause error) {
		end("dead-lettered", func() error { return l.DeadLetter(work, reason, cause.Error()) })
	}
	if err != nil {
		n.log.Warn("digest refused: it is kept as a dead letter", zap.String("monitor_queue", l.Queue), zap.String("message_id", l.ID), zap.Error(err))
		refuse(intake.Malformed, err)
		return
	}
	groups := n.sinks.Load().groups[d.Sink]
	if groups == nil {
		if due, ok := n.leaveDigest(&d); ok {
			n.cfg.Yield()
			end("put back", func() error { return n.putBackDigest(work, l, d, due) })
			return
		}
		n.log.Error("digest undeliverable: it is kept as a dead letter", zap.String("monitor_queue", l.Queue), zap.String("sink", d.Sink), zap.Error(errUnknownSink))
		refuse(intake.Undeliverable, fmt.Errorf("%w: %q", errUnknownSink, d.Sink))
		return
	}
	groups.Due(alert.DueDigest{
		Digest: d,
		Done: func(refused error) {
			if refused != nil {
				refuse(intake.Undeliverable, refused)
				return
			}
			end("completed", func() error { return l.Complete(work) })
		},
		Release: func() { end("handed back", func() error { return l.HandBack(work) }) },
	})
}

// errUnknownSink: the sink of the digest was removed or renamed.
var errUnknownSink = fmt.Errorf("no monitor of the last %v has a sink of that name that takes digests", unknownSinkMax)

// leaveDigest returns until when d, whose sink is unknown here, is left to other monitors. ok
// is false when that has lasted too long.
func (n *Notifier) leaveDigest(d *alert.Digest) (until time.Time, ok bool) {
	now := n.cfg.Now()
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
func (n *Notifier) putBackDigest(ctx context.Context, l *intake.Lease, d alert.Digest, due time.Time) error {
	n.log.Info("digest left to a monitor that has its sink", zap.String("sink", d.Sink), zap.Time("until", due))
	if err := keepDigest(ctx, n.cfg.Scheduler, due, d); err != nil {
		l.LetGo()
		return err // its lock lapses
	}
	return l.Complete(ctx)
}
