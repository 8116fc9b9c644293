// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

const (
	// maxPages and maxTime bound one adopt pass, well within the lock of its note.
	// The next pass continues rest later.
	maxPages = 20
	maxTime  = 15 * time.Second
	rest     = time.Second
	// minAge is the least age of a message: sequence numbers may become visible out of
	// order, and an endpoint may be about to write a companion.
	minAge = time.Second
	// staleTopic is the least age at which the subscriptions of a topic are read again.
	staleTopic = 5 * time.Second
	// mostReferences bounds the references of a companion of overdue messages.
	mostReferences = 100
	// maxPaths bounds the subscriptions of an adopted topic: the note has a position
	// for each.
	maxPaths = 1000
)

// position is how far a queue or subscription has been read.
type position struct {
	Next     int64     `json:"next"`              // the first number that has not been seen
	Enqueued time.Time `json:"enqueued,omitzero"` // of the last seen message
}

// pass reads an entity from where the last pass ended, and writes companions for its
// messages.
type pass struct {
	a         *Adopter
	entity    string
	path      string         // the entity, or the subscription that is read
	settings  judge.Settings // of the path
	pages     int            // that may still be read
	until     time.Time
	positions map[string]position   // by subscription, "" for a queue
	more      bool                  // the bounds have ended it
	late      []scheduler.Reference // overdue messages that were read, without companions yet
}

// run reads the entity. Its progress is in positions, also after an error.
func (s *pass) run(ctx context.Context) error {
	s.pages, s.until = maxPages, time.Now().Add(maxTime)
	base := s.a.cfg.Settings(ctx, s.entity)
	if s.a.cfg.Describe == nil {
		return s.readPath(ctx, "", base)
	}
	info, err := s.a.cfg.Describe(ctx, s.entity, time.Time{})
	if err == nil && info.Kind == entities.Topic {
		info, err = s.a.cfg.Describe(ctx, s.entity, time.Now().Add(-staleTopic))
	}
	switch {
	case errors.Is(err, entities.ErrNotFound):
		s.positions = map[string]position{} // a recreated queue starts its sequence numbers over
		return nil
	case errors.Is(err, entities.ErrNoRight):
		return s.readPath(ctx, "", base)
	case err != nil:
		return err
	}
	base.DefaultMessageTimeToLive = duration.Shorter(base.DefaultMessageTimeToLive, info.DefaultMessageTimeToLive)
	if info.Kind != entities.Topic {
		if !s.canAdopt(s.entity, info.AutoDeleteOnIdle, info.ForwardTo, info.Partitioned) {
			return nil
		}
		return s.readPath(ctx, "", base)
	}
	return s.subscriptions(ctx, info, base)
}

// subscriptions reads the subscriptions of a topic, from a random one on, so that each gets its
// turn if a pass cannot read all.
func (s *pass) subscriptions(ctx context.Context, info entities.Info, base judge.Settings) error {
	all := info.Subscriptions
	if len(all) > maxPaths {
		s.refuse(s.entity, fmt.Sprintf("only the first %d of its subscriptions are scanned", maxPaths), "send through an endpoint of Overdue to monitor the others")
		all = all[:maxPaths]
	}
	for name := range s.positions {
		if !slices.ContainsFunc(all, func(sub entities.Subscription) bool { return sub.Name == name }) {
			delete(s.positions, name)
		}
	}
	var errs []error
	first := 0
	if len(all) > 0 {
		first = rand.IntN(len(all)) // if there is no time for all, each gets its turn
	}
	for _, sub := range slices.Concat(all[first:], all[:first]) {
		if !s.canAdopt(address.SubscriptionPath(s.entity, sub.Name), sub.AutoDeleteOnIdle, sub.ForwardTo, info.Partitioned) {
			continue
		}
		settings := base
		settings.DefaultMessageTimeToLive = duration.Shorter(base.DefaultMessageTimeToLive, sub.DefaultMessageTimeToLive)
		s.pages = max(s.pages, 1)
		errs = append(errs, s.readPath(ctx, sub.Name, settings))
	}
	return errors.Join(errs...)
}

// canAdopt reports whether a queue or subscription can be adopted, and logs once why not.
func (s *pass) canAdopt(path string, idle time.Duration, forwardTo string, partitioned bool) bool {
	switch {
	case idle > 0:
		s.refuse(path, "scanning it would keep it from being deleted when it is idle", "remove adopt or its autoDeleteOnIdle")
	case forwardTo != "":
		s.refuse(path, "it forwards its messages", "set adopt on the entity it forwards to: "+forwardTo)
	case partitioned:
		s.refusePartitioned(path)
	default:
		return true
	}
	return false
}

// refuse logs once why messages are not adopted.
func (s *pass) refuse(path, why, next string) {
	if _, warned := s.a.refused.LoadOrStore(path, true); !warned {
		s.a.cfg.Log.Warn("messages are not adopted", zap.String("work_queue", path), zap.String("why", why), zap.String("next", next))
	}
}

// refusePartitioned: the messages have no order that a pass could follow.
func (s *pass) refusePartitioned(path string) {
	s.refuse(path, "a partitioned entity cannot be scanned for new messages", "send through an endpoint of Overdue")
}

// readPath reads one queue or subscription and writes companions for its new messages.
func (s *pass) readPath(ctx context.Context, subscription string, settings judge.Settings) error {
	s.path, s.settings = s.entity, settings
	if subscription != "" {
		s.path = address.SubscriptionPath(s.entity, subscription)
	}
	v := search.View{Links: s.a.cfg.Links, Path: s.path, Operations: s.a.cfg.Operations, Seen: &search.SeenIDs{}}
	defer v.Close(ctx)
	start := s.positions[subscription]
	at, err := s.readPages(ctx, &v, start)
	// The first check of an overdue message expires all overdue ones, and a dead letter is not
	// adopted. So all messages are read before any companion of an overdue one is written.
	if lateErr := s.giveLate(ctx); lateErr != nil {
		at, err = start, errors.Join(err, lateErr)
	}
	s.positions[subscription] = at
	return err
}

// readPages reads from a position on, and returns the next position.
func (s *pass) readPages(ctx context.Context, v *search.View, at position) (position, error) {
	for first := true; ; first = false {
		if s.pages == 0 || time.Now().After(s.until) || s.a.cfg.Crowded() || s.a.cfg.Stopping() {
			s.more = true
			return at, nil
		}
		s.pages--
		page, err := v.Peek(ctx, at.Next, search.PageSize)
		if errors.Is(err, search.ErrPartitioned) {
			s.refusePartitioned(s.path)
			return at, nil
		}
		if link.Condition(err) == link.ConditionNotFound {
			return position{}, nil
		}
		if err != nil {
			return at, err
		}
		if len(page) == 0 && first && at.Next > 0 && s.wasRecreated(ctx, v, at) {
			at = position{}
			continue
		}
		page, young := s.oldEnough(page)
		if err := s.giveCompanions(ctx, page); err != nil {
			return at, err
		}
		if n := len(page); n > 0 {
			at = position{page[n-1].SequenceNumber + 1, page[n-1].EnqueuedTime}
		}
		if young || len(page) == 0 {
			return at, nil
		}
	}
}

// wasRecreated reports whether the queue was deleted and recreated: its sequence numbers start
// over.
func (s *pass) wasRecreated(ctx context.Context, v *search.View, at position) bool {
	head, err := v.Peek(ctx, 0, 1)
	return err == nil && len(head) > 0 && head[0].SequenceNumber < at.Next && head[0].EnqueuedTime.After(at.Enqueued)
}

// oldEnough returns the messages before the first one that is too young, and whether one is.
func (s *pass) oldEnough(page []*link.Message) (old []*link.Message, young bool) {
	limit := s.a.cfg.Latest().Add(-minAge)
	for i, m := range page {
		if m.EnqueuedTime.After(limit) {
			return page[:i], true
		}
	}
	return page, false
}

// giveCompanions writes companions, and returns when all are accepted. Those of overdue messages
// are kept for giveLate.
func (s *pass) giveCompanions(ctx context.Context, page []*link.Message) error {
	late, ahead := s.adoptAll(page)
	s.late = append(s.late, late...)
	if len(ahead) == 0 {
		return nil
	}
	return s.write(ctx, len(ahead), s.a.cfg.Scheduler.Begin(scheduler.Companion{Entity: s.path, References: ahead}))
}

// giveLate writes the companions of the overdue messages that were read.
func (s *pass) giveLate(ctx context.Context) error {
	late := s.late
	s.late = nil
	var waits []func(context.Context) error
	for _, second := range []bool{false, true} { // companions that earlier readers refuse are separate
		part := slices.DeleteFunc(slices.Clone(late), func(r scheduler.Reference) bool {
			return ((&scheduler.Companion{References: []scheduler.Reference{r}}).Version() > 1) != second
		})
		for refs := range slices.Chunk(part, mostReferences) {
			waits = append(waits, s.a.cfg.Scheduler.Begin(scheduler.Companion{Entity: s.path, Due: s.a.cfg.Latest(), References: refs}))
		}
	}
	return s.write(ctx, len(late), waits...)
}

// write waits until the companions of n messages are accepted.
func (s *pass) write(ctx context.Context, n int, waits ...func(context.Context) error) error {
	var errs []error
	for _, wait := range waits {
		errs = append(errs, wait(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.a.cfg.Adopted(s.path, n)
	return nil
}
