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

// unknownSinkMax is how long a digest is left to monitors whose configuration may have its sink. It
// is longer than a rollout.
const unknownSinkMax = time.Hour

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
	log := n.log.With(zap.String("monitor_queue", l.Queue), zap.String("message_id", l.ID), zap.String("sink", d.Sink))
	settle := func(settlement func(context.Context)) {
		go func() {
			defer ended()
			settlement(work)
		}()
	}
	refuse := func(reason string, cause error) {
		log.Error("digest refused: it is kept as a dead letter", zap.Error(cause))
		settle(func(ctx context.Context) { l.DeadLetter(ctx, reason, cause.Error()) })
	}
	if err != nil {
		refuse(intake.Malformed, err)
		return
	}
	for _, s := range *n.sinks.Load() {
		if s.groups == nil || s.Name() != d.Sink {
			continue
		}
		s.groups.Due(alert.DueDigest{
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
		refuse(intake.Undeliverable, fmt.Errorf("no monitor of the last %v has a sink %q that takes digests", unknownSinkMax, d.Sink))
		return
	}
	// It is written again for the worker that receives it at the next whole minute: so the digests of a
	// group stay together.
	until := now.Truncate(time.Minute).Add(time.Minute)
	log.Info("digest left to a monitor that has its sink", zap.Time("until", until))
	n.cfg.Yield()
	settle(func(ctx context.Context) {
		if err := NewOutbox(n.cfg.Scheduler).Keep(ctx, until, d); err != nil {
			log.Warn("digest not rewritten: it comes back when its lock lapses", zap.Error(err))
			l.LetGo()
			return
		}
		l.Complete(ctx)
	})
}
