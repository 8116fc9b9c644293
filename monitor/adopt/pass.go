// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"errors"
	"math"
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
	// maxPages bounds what a pass reads of one path, and so its memory. The next one continues rest
	// later.
	maxPages = 20
	rest     = time.Second
	// minAge is the least age of a message: sequence numbers may become visible out of order, and
	// an endpoint may be about to write a companion.
	minAge = time.Second
	// staleSettings is the least age at which the description of an entity is read again.
	staleSettings = 5 * time.Second
	// maxReferences bounds the references of a companion of overdue messages.
	maxReferences = 100
	// maxPaths bounds the subscriptions of a topic, of which Service Bus allows as many: the note has
	// a position for each.
	maxPaths = 2000
)

// pass reads an entity from where the last pass ended, and writes companions for its messages.
type pass struct {
	a         *Adopter
	entity    string
	request   *request            // nil: the entity is adopted
	positions map[string]position // by subscription, "" for a queue
	more      bool                // it has ended before it had read everything

	// Of the entity, or the subscription, that is read:
	path     string
	settings judge.Settings
	pages    int       // that may still be read
	limit    time.Time // what was enqueued later is too young, or has its companion
	refs     []scheduler.Reference
	nameless map[scheduler.Reference]bool // those of refs that stand for messages without an id
}

// run reads the entity. Its progress is in positions, also after an error.
func (p *pass) run(ctx context.Context) error {
	settings := p.a.cfg.Settings(ctx, p.entity)
	if p.a.cfg.Describe == nil {
		return p.readPath(ctx, "", settings)
	}
	info, err := p.a.cfg.Describe(ctx, p.entity, time.Now().Add(-staleSettings))
	switch {
	case errors.Is(err, entities.ErrNotFound):
		p.positions = map[string]position{} // a recreated queue starts its sequence numbers over
		return nil
	case errors.Is(err, entities.ErrNoRight):
		return p.readPath(ctx, "", settings)
	case err != nil:
		return err
	}
	settings.DefaultMessageTimeToLive = duration.Shorter(settings.DefaultMessageTimeToLive, info.DefaultMessageTimeToLive)
	settings.DefaultSince = info.UpdatedAt
	if info.Kind == entities.Topic {
		return p.readSubscriptions(ctx, info, settings)
	}
	if !p.canRead(p.entity, info.AutoDeleteOnIdle, info.ForwardTo, info.Partitioned) {
		return nil
	}
	return p.readPath(ctx, "", settings)
}

// readSubscriptions reads the subscriptions of a topic.
func (p *pass) readSubscriptions(ctx context.Context, topic entities.Info, base judge.Settings) error {
	all := topic.Subscriptions[:min(len(topic.Subscriptions), maxPaths)]
	before := p.positions
	p.positions = map[string]position{} // without those of deleted subscriptions
	for _, sub := range all {
		p.positions[sub.Name] = before[sub.Name]
	}
	var errs []error
	for _, sub := range all {
		if !p.canRead(address.SubscriptionPath(p.entity, sub.Name), sub.AutoDeleteOnIdle, sub.ForwardTo, topic.Partitioned) {
			continue
		}
		settings := base
		settings.DefaultMessageTimeToLive = duration.Shorter(base.DefaultMessageTimeToLive, sub.DefaultMessageTimeToLive)
		settings.DefaultSince = duration.Later(base.DefaultSince, sub.UpdatedAt)
		errs = append(errs, p.readPath(ctx, sub.Name, settings))
	}
	return errors.Join(errs...)
}

// canRead reports whether a queue or subscription can be read, and logs once why not.
func (p *pass) canRead(path string, idle time.Duration, forwardTo string, partitioned bool) bool {
	var why string
	switch {
	case idle > 0 && p.request == nil:
		why = "it is deleted when it is idle, and reading it would keep it"
	case forwardTo != "":
		why = "it forwards its messages: set adopt on " + forwardTo
	case partitioned:
		why = "it is partitioned, and its messages have no order that a pass could follow"
	default:
		return true
	}
	if _, warned := p.a.refused.LoadOrStore(path, true); !warned {
		p.a.cfg.Log.Warn("messages are not adopted: send them through an endpoint of Overdue", zap.String("work_queue", path), zap.String("why", why))
	}
	return false
}

// readPath reads one queue or subscription and writes companions for its new messages. The first
// check of an overdue message expires all overdue ones, and a dead letter is not adopted. So it
// reads all messages before it writes any companion.
//
// For a request it reads the dead letters with the same numbers after that: a message that was not
// on the queue any more is one of them, or was received.
func (p *pass) readPath(ctx context.Context, subscription string, settings judge.Settings) error {
	p.path, p.settings = p.entity, settings
	if subscription != "" {
		p.path = address.SubscriptionPath(p.entity, subscription)
	}
	p.limit, p.refs, p.nameless = p.a.cfg.Latest().Add(-minAge), nil, map[scheduler.Reference]bool{}
	if p.request != nil && p.request.Since.Add(senderLag).Before(p.limit) {
		p.limit = p.request.Since.Add(senderLag)
	}
	start := p.positions[subscription]
	next, end, err := p.read(ctx, p.path, start, math.MaxInt64, p.takeMessage)
	if err == nil && p.request != nil {
		letters, reached, lettersErr := p.read(ctx, p.path+"/$DeadLetterQueue", start, end, p.takeLetter)
		if err = lettersErr; reached < next.Next || letters.Next > next.Next {
			next = letters
		}
	}
	if writeErr := p.writeCompanions(ctx); writeErr != nil {
		next, err = start, errors.Join(err, writeErr)
	}
	p.positions[subscription] = next
	return err
}

// read takes what is old enough on a queue or dead-letter queue, from a position on to the number
// end. It returns the position behind that, and the number up to which there is no more.
func (p *pass) read(ctx context.Context, path string, at position, end int64, take func(*link.Message)) (next position, reached int64, err error) {
	v := search.View{Links: p.a.cfg.Links, Path: path, Operations: p.a.cfg.Operations}
	defer v.Close(ctx)
	p.pages = maxPages
	at, err = p.begin(ctx, &v, at)
	for err == nil && !v.Unordered && at.Next < end && p.mayRead() {
		var page []*link.Message
		page, err = v.Peek(ctx, at.Next, search.PageSize)
		switch {
		case err != nil || v.Unordered:
			continue
		case len(page) == 0:
			return at, end, nil
		}
		for _, m := range page {
			if m.SequenceNumber >= end || m.EnqueuedTime.After(p.limit) {
				return at, min(m.SequenceNumber, end), nil
			}
			take(m)
			at = position{Next: m.SequenceNumber + 1, Enqueued: m.EnqueuedTime}
		}
	}
	switch {
	case v.Unordered:
		p.canRead(p.path, 0, "", true) // nobody has described it
	case link.Condition(err) == link.ConditionNotFound:
		return position{}, 0, nil
	}
	return at, at.Next, err
}

// mayRead takes one of the pages that the pass may read. It reports false if there are none.
func (p *pass) mayRead() bool {
	p.pages--
	if p.pages < 0 || p.a.cfg.Busy() {
		p.more = true
		return false
	}
	return true
}

// begin returns where to begin to read. The sequence numbers of a queue that was deleted and
// recreated start over. For a request it searches for the first message that was enqueued since
// then.
func (p *pass) begin(ctx context.Context, v *search.View, at position) (position, error) {
	head, err := v.Peek(ctx, 0, 1)
	if err != nil || len(head) == 0 {
		return at, err
	}
	first := head[0].SequenceNumber
	if first < at.Next && head[0].EnqueuedTime.After(at.Enqueued) {
		at = position{}
	}
	if at.Next > 0 || p.request == nil || p.request.All || !head[0].EnqueuedTime.Before(p.request.Since) {
		return at, nil
	}
	before, behind := first, int64(math.MaxInt64)
	for step := int64(search.PageSize); behind-before > search.PageSize; {
		middle := before + min(step, (behind-before)/2)
		page, err := v.Peek(ctx, middle, 1)
		if err != nil {
			return at, err
		}
		if len(page) > 0 && page[0].EnqueuedTime.Before(p.request.Since) {
			before, step = page[0].SequenceNumber, 2*step
		} else {
			behind = middle
		}
	}
	return position{Next: before + 1}, nil
}

// writeCompanions writes companions with the references, and returns when all are accepted.
func (p *pass) writeCompanions(ctx context.Context) error {
	if len(p.refs) == 0 {
		return nil
	}
	now := p.a.cfg.Latest()
	var late, ahead []scheduler.Reference
	for _, r := range p.refs {
		if r.Deadline.Add(-r.Ahead).After(now) {
			ahead = append(ahead, r)
		} else {
			late = append(late, r)
		}
	}
	waits := []func(context.Context) error{p.a.cfg.Scheduler.Begin(scheduler.Companion{Entity: p.path, References: ahead})}
	for refs := range slices.Chunk(late, maxReferences) {
		waits = append(waits, p.a.cfg.Scheduler.Begin(scheduler.Companion{Entity: p.path, Due: now, References: refs}))
	}
	for _, wait := range waits {
		if err := wait(ctx); err != nil {
			return err
		}
	}
	p.a.cfg.Adopted(p.path, len(p.refs))
	return nil
}
