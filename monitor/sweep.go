// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

const (
	// maxSweepPages and maxSweepTime bound one sweep, well within the lock of its note. What is left is looked through by
	// the next, sweepRest later.
	maxSweepPages = 20
	maxSweepTime  = 15 * time.Second
	sweepRest     = time.Second
	// sweepYoung is how old a message has to be: numbers need not be seen in their order at once, and a door may be about to
	// give it a companion.
	sweepYoung = time.Second
	// maxSwept bounds the subscriptions of a topic that are looked through: where each was left is part of the note.
	maxSwept = 1000
)

// errSweepPartitioned: its messages are in no order in which they could be looked through bit by bit.
var errSweepPartitioned = errors.New("a partitioned entity cannot be looked through for new messages")

// place is how far one queue or subscription has been looked through.
type place struct {
	Next     int64     `json:"next"`              // the first number that has not been seen
	Enqueued time.Time `json:"enqueued,omitzero"` // of the last message that was
}

// sweep is one look through an entity, from where the last one ended.
type sweep struct {
	w        *Worker
	entity   string
	path     string   // the entity, or the subscription that is looked through
	settings Settings // of the path
	pages    int      // that may still be read
	until    time.Time
	places   map[string]place // by subscription, "" for a queue
	more     bool             // the bounds have ended it
}

// run looks through all that the entity is made of. What it has done is in places, also when it fails.
func (s *sweep) run(ctx context.Context) error {
	s.pages, s.until = maxSweepPages, time.Now().Add(maxSweepTime)
	base := s.w.cfg.Settings(ctx, s.entity)
	if s.w.cfg.Describe == nil {
		return s.through(ctx, "", base)
	}
	info, err := s.w.cfg.Describe(ctx, s.entity, time.Time{})
	if err == nil && info.Kind == entities.Topic {
		info, err = s.w.cfg.Describe(ctx, s.entity, time.Now().Add(-staleTopic))
	}
	switch {
	case errors.Is(err, entities.ErrNotFound):
		s.places = map[string]place{} // should it be made anew, its numbers begin anew
		return nil
	case errors.Is(err, entities.ErrNoRight):
		return s.through(ctx, "", base)
	case err != nil:
		return err
	}
	base.DefaultMessageTimeToLive = shorter(base.DefaultMessageTimeToLive, info.DefaultMessageTimeToLive)
	if info.Kind != entities.Topic {
		if !s.fit(s.entity, info.AutoDeleteOnIdle, info.ForwardTo, info.Partitioned) {
			return nil
		}
		return s.through(ctx, "", base)
	}
	return s.subscriptions(ctx, info, base)
}

// subscriptions looks through those of a topic, in turn where the bounds do not let all be done at once.
func (s *sweep) subscriptions(ctx context.Context, info entities.Info, base Settings) error {
	all := info.Subscriptions
	if len(all) > maxSwept {
		s.refuse(s.entity, fmt.Sprintf("only the first %d of its subscriptions are looked through", maxSwept), "monitor the others through a door")
		all = all[:maxSwept]
	}
	for name := range s.places {
		if !slices.ContainsFunc(all, func(sub entities.Subscription) bool { return sub.Name == name }) {
			delete(s.places, name)
		}
	}
	var errs []error
	first := 0
	if len(all) > 0 {
		first = rand.IntN(len(all)) // where there is no time for all of them each has its turn
	}
	for _, sub := range slices.Concat(all[first:], all[:first]) {
		if !s.fit(subscriptionPath(s.entity, sub.Name), sub.AutoDeleteOnIdle, sub.ForwardTo, info.Partitioned) {
			continue
		}
		settings := base
		settings.DefaultMessageTimeToLive = shorter(base.DefaultMessageTimeToLive, sub.DefaultMessageTimeToLive)
		s.pages = max(s.pages, 1)
		errs = append(errs, s.through(ctx, sub.Name, settings))
	}
	return errors.Join(errs...)
}

// fit reports whether a queue or subscription can be looked through, and says once why not.
func (s *sweep) fit(path string, idle time.Duration, forwardTo string, partitioned bool) bool {
	switch {
	case idle > 0:
		s.refuse(path, "to look through it would keep it from being deleted when it is idle", "take adopt off it, or its autoDeleteOnIdle")
	case forwardTo != "":
		s.refuse(path, "its messages move on", "set adopt where they end: "+forwardTo)
	case partitioned:
		s.refuse(path, errSweepPartitioned.Error(), "send through a door of Overdue")
	default:
		return true
	}
	return false
}

// refuse says once why something is not adopted.
func (s *sweep) refuse(path, why, next string) {
	told := false
	s.w.facts.learn("adopt "+path, func(f *fact) { told, f.warned = f.warned, true })
	if !told {
		s.w.log.Warn("messages are not adopted", zap.String("work_queue", path), zap.String("why", why), zap.String("next", next))
	}
}

// through looks through one queue or subscription, and gives what is new there companions.
func (s *sweep) through(ctx context.Context, subscription string, settings Settings) error {
	s.path, s.settings = s.entity, settings
	if subscription != "" {
		s.path = subscriptionPath(s.entity, subscription)
	}
	v := view{links: s.w.cfg.Links, path: s.path, metrics: s.w.metrics, memory: &memory{}}
	defer v.close(ctx)
	at := s.places[subscription]
	defer func() { s.places[subscription] = at }()
	for first := true; ; first = false {
		if s.pages == 0 || time.Now().After(s.until) || s.w.crowded() || s.w.isStopping() {
			s.more = true
			return nil
		}
		s.pages--
		page, err := v.peek(ctx, at.Next, pageSize)
		if errors.Is(err, errPartitioned) {
			s.refuse(s.path, errSweepPartitioned.Error(), "send through a door of Overdue")
			return nil
		}
		if entityMissing(err) {
			at = place{}
			return nil
		}
		if err != nil {
			return err
		}
		if len(page) == 0 && first && at.Next > 0 && s.madeAnew(ctx, &v, at) {
			at = place{}
			continue
		}
		page, young := s.grown(page)
		if err := s.giveCompanions(ctx, page); err != nil {
			return err
		}
		if n := len(page); n > 0 {
			at = place{page[n-1].SequenceNumber + 1, page[n-1].EnqueuedTime}
		}
		if young || len(page) == 0 {
			return nil
		}
	}
}

// madeAnew reports whether the numbers of a queue have begun anew: it was deleted and made again.
func (s *sweep) madeAnew(ctx context.Context, v *view, at place) bool {
	head, err := v.peek(ctx, 0, 1)
	return err == nil && len(head) > 0 && head[0].SequenceNumber < at.Next && head[0].EnqueuedTime.After(at.Enqueued)
}

// grown cuts off the messages that are too young, and reports whether there are some.
func (s *sweep) grown(page []*link.Message) (old []*link.Message, young bool) {
	limit := s.w.latest().Add(-sweepYoung)
	for i, m := range page {
		if m.EnqueuedTime.After(limit) {
			return page[:i], true
		}
	}
	return page, false
}

// giveCompanions returns when all that it has asked for are on the monitor queue.
func (s *sweep) giveCompanions(ctx context.Context, page []*link.Message) error {
	late, ahead := s.adoptAll(page)
	var waits []func(context.Context) error
	if len(ahead) > 0 {
		waits = append(waits, s.w.cfg.Scheduler.Begin(scheduler.Companion{Entity: s.path, References: ahead}))
	}
	for _, second := range []bool{false, true} { // those that earlier readers refuse, apart
		part := slices.DeleteFunc(slices.Clone(late), func(r scheduler.Reference) bool {
			return ((&scheduler.Companion{References: []scheduler.Reference{r}}).Version() > 1) != second
		})
		for refs := range slices.Chunk(part, mergeMost) {
			waits = append(waits, s.w.cfg.Scheduler.Begin(scheduler.Companion{Kind: scheduler.KindEach, Entity: s.path, Due: s.w.latest(), References: refs}))
		}
	}
	var errs []error
	for _, wait := range waits {
		errs = append(errs, wait(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.w.metrics.adopted.WithLabelValues(s.w.metrics.entity(s.path)).Add(float64(len(late) + len(ahead)))
	return nil
}
