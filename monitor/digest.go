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

// NewOutbox keeps the digests of groups on the monitor queue. When they are due the [Worker] that receives one gives it to
// the groups of its sink, which it knows from [Config].
func NewOutbox(s *scheduler.Scheduler) alert.Outbox { return outbox{s} }

type outbox struct{ s *scheduler.Scheduler }

func (o outbox) Now() time.Time { return o.s.Now().Time }

func (o outbox) Keep(ctx context.Context, due time.Time, d alert.Digest) error {
	body, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("monitor: encode digest: %w", err)
	}
	return o.s.Keep(ctx, scheduler.Note{Due: due, ContentType: digestType, Subject: "digest", Body: body})
}

// digest gives one that has become due to the groups of its sink.
func (w *Worker) digest(work context.Context, l *lease) {
	d, err := alert.ParseDigest(l.message.GetData())
	groups := w.sinks.Load().groups[d.Sink]
	if err == nil && groups == nil {
		err = fmt.Errorf("the configuration has no sink %q that takes groups", d.Sink)
	}
	w.running.Add(1) // until it is settled
	end := func(what string, settle func() error) {
		go func() {
			defer w.running.Done()
			defer func() { <-w.room }()
			if err := settle(); err != nil {
				w.log.Warn("digest not "+what+", it will come back", zap.String("sink", d.Sink), zap.Error(err))
			}
		}()
	}
	refuse := func(reason string, cause error) {
		end("dead-lettered", func() error { return l.deadLetter(work, reason, cause.Error()) })
	}
	if err != nil {
		w.log.Warn("digest refused", zap.String("message_id", l.id()), zap.Error(err))
		refuse(reasonMalformed, err)
		return
	}
	groups.Ring(alert.Rung{
		Digest: d,
		Done: func(refused error) {
			if refused != nil {
				refuse(reasonUndeliverable, refused)
				return
			}
			end("completed", func() error { return l.complete(work) })
		},
		Back: func() { end("handed back", func() error { return l.handBack(work) }) },
	})
}
