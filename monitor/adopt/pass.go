// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/scan"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// maxReferences bounds about how many messages a pass takes of one path, and so its memory. The
// next one goes on.
const maxReferences = 5000

// pass writes companions for the messages of an entity, from where the last pass ended.
type pass struct {
	*Adopter
	note      // of this pass, then of the next one
	more bool // it has ended before it had read everything

	// Of the entity, or the subscription, that is read:
	path     string
	settings judge.Settings
	limit    time.Time // what was enqueued later is too young
	refs     []scheduler.Reference
}

// run visits the queue, or the subscriptions of the topic. Its progress is in Positions, also after
// an error. Without the right to read descriptions, the entity counts as a queue.
func (p *pass) run(ctx context.Context) (err error) {
	info := entities.Info{}
	if p.cfg.Describe != nil {
		info, err = p.cfg.Describe(ctx, p.Entity, time.Now().Add(-search.SettledAge))
	}
	isMissing := errors.Is(err, entities.ErrNotFound)
	if err != nil && !isMissing && !errors.Is(err, entities.ErrNoRight) {
		return err
	}
	before := p.Positions
	p.Positions = map[string]position{} // without those of what was deleted
	if isMissing {
		return nil
	}
	base := p.cfg.Settings(ctx, p.Entity)
	paths := info.Subscriptions
	if info.Kind != entities.Topic {
		paths = []entities.Subscription{{AutoDeleteOnIdle: info.AutoDeleteOnIdle, ForwardTo: info.ForwardTo}}
	}
	var errs []error
	for _, sub := range paths {
		p.Positions[sub.Name] = before[sub.Name]
		p.path, p.settings = p.Entity, base
		if sub.Name != "" {
			p.path = address.SubscriptionPath(p.Entity, sub.Name)
		}
		life := duration.Shorter(info.DefaultMessageTimeToLive, sub.DefaultMessageTimeToLive)
		p.settings.DefaultMessageTimeToLive = duration.Shorter(base.DefaultMessageTimeToLive, life)
		p.settings.DefaultSince = duration.Later(info.UpdatedAt, sub.UpdatedAt)
		switch {
		case sub.AutoDeleteOnIdle > 0 && p.Request == nil:
			p.refuse("it is deleted when it is idle, and reading it would keep it")
		case sub.ForwardTo != "":
			p.refuse("it forwards its messages: set adopt on " + sub.ForwardTo)
		default:
			errs = append(errs, p.visit(ctx, sub.Name))
		}
	}
	return errors.Join(errs...)
}

// refuse logs once why no companions can be written for the path.
func (p *pass) refuse(why string) {
	if _, warned := p.refused.LoadOrStore(p.path, true); !warned {
		p.cfg.Log.Warn("messages are not adopted: send them through an endpoint of Overdue", zap.String("work_queue", p.path), zap.String("why", why))
	}
}

// visit writes companions for one queue or subscription. The first check of an overdue message
// expires all overdue ones, and a dead letter is not adopted. So it reads all messages before it
// writes any companion.
func (p *pass) visit(ctx context.Context, subscription string) (err error) {
	p.limit, p.refs = p.cfg.Latest().Add(-search.SettledAge), nil
	at, reads := p.Positions[subscription], p.Request == nil || p.Request.All
	if reads {
		at, err = p.read(ctx, at)
	} else {
		at = p.cover(at)
	}
	if err == nil {
		err = p.cfg.Scheduler.Schedule(ctx, scheduler.Companion{Entity: p.path, References: p.refs})
	}
	if err != nil {
		return err
	}
	if reads {
		p.cfg.Adopted(p.path, len(p.refs))
	}
	p.Positions[subscription] = at
	return nil
}

// cover makes references to all messages of the path whose senders may not have known its default
// time to live, if it has changed.
func (p *pass) cover(at position) position {
	life, since := p.settings.DefaultMessageTimeToLive, sinceChange(p.settings.DefaultSince)
	if life == 0 || since.Before(p.Request.Since) || at.Enqueued.After(since) {
		return at
	}
	// A window is no longer than the monitor holds a companion, so nobody writes that again.
	end, length := since.Add(senderLag), senderLag/30
	for from := since; from.Before(end); from = from.Add(length) {
		p.refs = append(p.refs, scheduler.Reference{
			From:     from,
			Until:    from.Add(length - search.StampPrecision),
			Deadline: from.Add(life),
			Within:   life,
			Stated:   "default",
		})
	}
	return position{Enqueued: end}
}

// read takes what was enqueued behind a position and is old enough, and returns how far that is.
// For a request it takes the dead letters as well: what has expired before it was read on the
// queue.
func (p *pass) read(ctx context.Context, at position) (position, error) {
	queue := search.View{Links: p.cfg.Links, Path: p.path, Operations: p.cfg.Operations}
	defer queue.Close(ctx)
	queue.Hint(at.Next-1, at.Enqueued.Add(-search.StampPrecision))
	next, isCut := position{at.Next, p.limit}, false
	err := queue.Read(ctx, at.Enqueued, p.limit, func(page []*link.Message) bool {
		for _, m := range page {
			if at.isBefore(m) && !m.EnqueuedTime.After(p.limit) {
				p.take(m, time.Time{})
				next.Next = m.SequenceNumber + 1
			}
		}
		last := page[len(page)-1].EnqueuedTime
		if isCut = len(p.refs) >= maxReferences && !last.After(p.limit); isCut {
			next.Enqueued = last
		}
		return !isCut && !queue.Unordered
	})
	p.more = p.more || isCut && !queue.Unordered
	switch {
	case queue.Unordered:
		p.refuse("it is partitioned, and its messages have no order that a pass could follow")
		p.refs = nil
		return at, nil
	case link.Condition(err) == link.ConditionNotFound:
		return position{}, nil
	case err != nil:
		return at, err
	case p.Request == nil:
		return next, nil
	}
	letters := search.View{Links: p.cfg.Links, Path: p.path + "/$DeadLetterQueue", Operations: p.cfg.Operations}
	defer letters.Close(ctx)
	return next, letters.Between(ctx, at.Enqueued, next.Enqueued, func(m *link.Message) {
		if m.DeadLetterReason == search.ReasonExpired || m.DeadLetterReason == scan.Reason {
			p.take(m, p.Request.Since)
		}
	})
}

// reference returns the reference of a message on a queue, at the instant now of the clock of the
// broker. ok is false if it has no deadline.
func reference(m *link.Message, s judge.Settings, now time.Time) (r scheduler.Reference, ok bool) {
	deadline, by := judge.DeadlineOf(&r, m, s), judge.CompleteBy(&r, m, s)
	if search.Pending(m) || deadline.IsZero() && by.IsZero() {
		return r, false
	}
	how, _ := judge.HowStated(m, s)
	r = scheduler.Reference{
		MessageID: m.MessageID,
		SessionID: m.SessionID,
		Sent:      m.EnqueuedTime,
		From:      m.EnqueuedTime,
		Until:     m.EnqueuedTime,
		Deadline:  deadline,
		Stated:    how,
	}
	warnings := s.WarnBefore
	if deadline.IsZero() {
		r.Deadline, r.Stated = by, scheduler.StatedComplete
		by, warnings = time.Time{}, nil
	}
	if r.Stated != "deadline" {
		r.Within = r.Deadline.Sub(m.EnqueuedTime)
	}
	if !by.IsZero() {
		r.CompleteWithin = by.Sub(m.EnqueuedTime)
		r.Ahead = max(r.Deadline.Sub(by), 0)
	}
	for _, before := range warnings {
		if at := r.Deadline.Add(-before); at.After(m.EnqueuedTime) && at.After(now) {
			r.Ahead = max(r.Ahead, before)
		}
	}
	return r, true
}

// take takes a message, unless it needs no companion. It needs none if its deadline was before an
// instant, or if one without an id was taken that stands for all of that instant with that
// deadline.
func (p *pass) take(m *link.Message, since time.Time) {
	r, ok := reference(m, p.settings, p.limit)
	r.Ahead = min(r.Ahead, r.Deadline.Sub(p.limit)) // what is overdue is due at one instant
	switch n := len(p.refs); {
	case !ok || r.Deadline.Before(since):
	case r.WithoutID() && n > 0 && p.refs[n-1] == r:
	case p.Request == nil && p.cfg.Scheduler.Watches(p.Entity, p.path, &r):
	default:
		p.refs = append(p.refs, r)
	}
}
