// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"overdue/internal/monitorqueue"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/monitor"
	"overdue/scheduler"
)

const (
	// formerEvery is how often former monitor queues are looked for, and formerAgain when that has
	// failed.
	formerEvery = 5 * time.Minute
	formerAgain = 30 * time.Second
	// formerPeek is how many messages of a queue are looked at for a companion.
	formerPeek = 100
)

// former looks for monitor queues beyond those of the configuration. Companions are left there when
// monitorQueues was lowered, and other processes write there already when it is being raised.
type former struct {
	queues monitorqueue.Queues
	source entities.Source // says whether a queue exists, where that is known
	links  *link.Namespace
	worker *monitor.Worker
	log    *zap.Logger
}

// run has the worker receive from each that it finds, until ctx ends.
func (f *former) run(ctx context.Context) error {
	for {
		next := formerEvery
		if err := f.look(ctx); err != nil && ctx.Err() == nil {
			f.log.Debug("former monitor queues not looked for", zap.Error(err))
			next = formerAgain
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return nil
		}
	}
}

// look goes through the queues that there may be, up to the first that does not exist.
func (f *former) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	for i := f.queues.Len(); i < monitorqueue.Most; i++ {
		name := f.queues.Name(i)
		// A peek makes some brokers create the queue, so it is only the second thing to try.
		info, err := f.source.Read(ctx, name)
		if errors.Is(err, entities.ErrNotFound) || err == nil && info.Kind != entities.Queue {
			return nil
		}
		some, err := f.holdsCompanions(ctx, name)
		switch {
		case link.Condition(err) == link.ConditionNotFound, link.Unauthorized(err):
			return nil
		case err != nil:
			return fmt.Errorf("peek at %s: %w", name, err)
		}
		if some {
			f.worker.ReceiveAlso(name)
		}
	}
	return nil
}

// holdsCompanions reports whether there are companions in a queue. If there is nothing but other
// messages, it is the queue of an app that happens to have such a name.
func (f *former) holdsCompanions(ctx context.Context, name string) (some bool, err error) {
	seen := 0
	err = dlq.WalkAt(ctx, f.links, name, 0, func(l *dlq.Letter) bool {
		seen++
		some = scheduler.IsCompanion(l.ContentType, l.Subject)
		return !some && seen < formerPeek
	})
	return some, err
}
