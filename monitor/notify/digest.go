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
	// unknownSinkWait is how long it is put back each time, until a whole multiple, so that the
	// digests of a group stay together.
	unknownSinkWait = time.Minute
)

// errUnknownSink: the sink of the digest was removed or renamed.
var errUnknownSink = fmt.Errorf("no monitor of the last %v has a sink of that name that takes digests", unknownSinkMax)

// NewOutbox keeps the digests of groups on the monitor queue. When they are due, the worker
// that receives one gives it to the groups of its sink, see [Notifier.Digest].
func NewOutbox(s *scheduler.Scheduler) alert.Outbox { return outbox{s} }

type outbox struct{ s *scheduler.Scheduler }

func (o outbox) Now() time.Time { return o.s.Now().Time }

func (o outbox) Keep(ctx context.Context, due time.Time, d alert.Digest) error {
	body, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("notify: encode digest: %w", err)
	}
	return o.s.Keep(ctx, scheduler.Note{
		Due:         due,
		ContentType: DigestType,
		Subject:     "digest",
		Body:        body,
	})
}

// Digest hands a digest that is due to the groups of its sink. It calls ended when the lease is
// settled.
func (n *Notifier) Digest(work context.Context, l *intake.Lease, ended func()) {
	d, err := alert.ParseDigest(l.Body)
	settle := func(settlement func(context.Context) error) {
		go func() {
			defer ended()
			if err := settlement(work); err != nil {
				n.log.Warn("digest not settled: it comes back when its lock lapses", zap.String("sink", d.Sink), zap.Error(err))
			}
		}()
	}
	refuse := func(reason string, cause error) {
		n.log.Error("digest refused: it is kept as a dead letter", zap.String("monitor_queue", l.Queue), zap.String("message_id", l.ID), zap.String("sink", d.Sink), zap.Error(cause))
		settle(func(ctx context.Context) error { return l.DeadLetter(ctx, reason, cause.Error()) })
	}
	if err != nil {
		refuse(intake.Malformed, err)
		return
	}
	groups := n.groupsOf(d.Sink)
	if groups != nil {
		groups.Due(alert.DueDigest{
			Digest: d,
			Done: func(refused error) {
				if refused != nil {
					refuse(intake.Undeliverable, refused)
					return
				}
				settle(l.Complete)
			},
			Release: func() { settle(l.HandBack) },
		})
		return
	}
	now := n.cfg.Now()
	if d.UnknownSince.IsZero() || d.UnknownSince.After(now) { // nobody else's future keeps it for longer
		d.UnknownSince = now
	}
	if now.Sub(d.UnknownSince) >= unknownSinkMax {
		refuse(intake.Undeliverable, fmt.Errorf("%w: %q", errUnknownSink, d.Sink))
		return
	}
	n.cfg.Yield()
	settle(func(ctx context.Context) error {
		return n.putBackDigest(ctx, l, d, now.Truncate(unknownSinkWait).Add(unknownSinkWait))
	})
}

// groupsOf returns the groups of the sink with that name, or nil.
func (n *Notifier) groupsOf(name string) *alert.Groups {
	for _, s := range *n.sinks.Load() {
		if s.groups != nil && s.Name() == name {
			return s.groups
		}
	}
	return nil
}

// putBackDigest rewrites d, for the worker that receives it when it is due.
func (n *Notifier) putBackDigest(ctx context.Context, l *intake.Lease, d alert.Digest, due time.Time) error {
	n.log.Info("digest left to a monitor that has its sink", zap.String("sink", d.Sink), zap.Time("until", due))
	if err := NewOutbox(n.cfg.Scheduler).Keep(ctx, due, d); err != nil {
		l.LetGo()
		return err
	}
	return l.Complete(ctx)
}
