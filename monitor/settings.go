// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"strings"
	"time"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/monitor/scan"
	"overdue/monitor/search"
)

// entitySettings is how an entity is configured here and in its namespace.
type entitySettings struct {
	Settings // with the effective default time to live

	asOf          time.Time // by our clock: older descriptions are stale
	warnedOfDrops bool      // the warning about dropped messages was logged
	known         bool      // its description is known
	created       time.Time // by the clock of the namespace; zero: unknown
	topic         bool
	subscription  bool
	subscriptions []string      // of a topic
	sessions      bool          // it requires sessions
	drops         bool          // it drops expired messages
	lock          time.Duration // its lock duration; 0: unknown
	unlisted      bool          // a subscription that its topic does not have
	partitioned   bool          // sequence numbers are not in the order of time
	forwardTo     string        // where it forwards messages; "": nowhere
	forwardDead   string        // where it forwards dead letters; "": nowhere
}

// describe finds out the settings of e. A cached description is enough, except for the
// subscriptions of a topic: its list may be nearDeadline old.
//
// Without the right to read descriptions, e counts as a queue: the broker itself reports that it
// requires sessions or does not exist. While an answer may come, describe fails, since a topic that
// is checked like a queue would seem empty.
func (e *entity) describe(ctx context.Context) error {
	name, subscription := address.SplitSubscription(e.name)
	before := e.settings
	e.settings = entitySettings{
		Settings:      e.w.cfg.Settings(ctx, name),
		asOf:          before.asOf,
		warnedOfDrops: before.warnedOfDrops,
		subscription:  subscription != "",
		sessions:      e.inbox.sessions.Load(),
	}
	if e.w.cfg.Describe == nil {
		return nil
	}
	info, err := e.w.cfg.Describe(ctx, name, before.asOf)
	if err == nil && info.Kind == entities.Topic && subscription == "" {
		info, err = e.w.cfg.Describe(ctx, name, time.Now().Add(-nearDeadline))
	}
	switch {
	case errors.Is(err, entities.ErrNotFound) || errors.Is(err, entities.ErrNoRight):
		return nil
	case err != nil:
		e.settings = before
		return err
	}
	e.w.adopter.Saw(name, &info)
	e.settings.apply(&info, subscription)
	for _, s := range e.settings.subscriptions {
		e.w.metrics.Show(address.SubscriptionPath(e.name, s))
	}
	e.work.Unordered = e.work.Unordered || e.settings.partitioned
	e.letters.view.Unordered = e.work.Unordered
	e.noteChange(&before)
	return nil
}

// noteChange drops what does not hold for e any more.
func (e *entity) noteChange(before *entitySettings) {
	now := &e.settings
	switch {
	case !before.known:
	case !before.created.IsZero() && !now.created.Equal(before.created):
		e.forget("its creation time")
	case !now.DefaultSince.Equal(before.DefaultSince) || now.DefaultMessageTimeToLive != before.DefaultMessageTimeToLive:
		e.backlog.Reset() // its order was that of the old default
	}
}

// apply takes what the namespace says of an entity, which is a subscription unless that is "".
func (t *entitySettings) apply(info *entities.Info, subscription string) {
	t.known = true
	t.created = info.CreatedAt
	t.partitioned = info.Partitioned
	t.DefaultMessageTimeToLive = duration.Shorter(t.DefaultMessageTimeToLive, info.DefaultMessageTimeToLive)
	t.DefaultSince = info.UpdatedAt
	if subscription == "" {
		t.topic = info.Kind == entities.Topic
		for _, s := range info.Subscriptions {
			t.subscriptions = append(t.subscriptions, s.Name)
		}
		if !t.topic {
			t.lock = info.LockDuration
			t.sessions, t.drops = info.RequiresSession, !info.DeadLetteringOnMessageExpiration
			t.forwardTo, t.forwardDead = info.ForwardTo, info.ForwardDeadLetteredMessagesTo
		}
		return
	}
	t.unlisted = info.Kind == entities.Topic
	for _, s := range info.Subscriptions {
		if strings.EqualFold(s.Name, subscription) {
			t.unlisted = false
			t.created = s.CreatedAt
			t.DefaultMessageTimeToLive = duration.Shorter(t.DefaultMessageTimeToLive, s.DefaultMessageTimeToLive)
			t.DefaultSince = duration.Later(t.DefaultSince, s.UpdatedAt)
			t.lock = s.LockDuration
			t.sessions, t.drops = s.RequiresSession, !s.DeadLetteringOnMessageExpiration
			t.forwardTo, t.forwardDead = s.ForwardTo, s.ForwardDeadLetteredMessagesTo
		}
	}
}

// nudgeReachesAll reports whether the broker expires overdue messages by itself, all of them end in
// its dead-letter queue, and one receiver reaches them.
func (t *entitySettings) nudgeReachesAll() bool {
	byHand := t.Strategy == strategyScan || t.Strategy == strategySession
	return !byHand && !t.topic && !t.sessions && !t.drops && !t.partitioned && t.forwardTo == "" && t.forwardDead == ""
}

// isUnreceived reports whether m was dead-lettered without having been received: it expired, or it
// could not be forwarded, for whatever reason. Nobody receives from an entity that forwards.
func (t *entitySettings) isUnreceived(m *link.Message) bool {
	return m.DeadLetterReason == search.ReasonExpired || m.DeadLetterReason == scan.Reason || t.forwardTo != ""
}

// lifeOf returns the time to live of a message, as far as that follows from today's settings; 0:
// none.
func (t *entitySettings) lifeOf(m *link.Message) time.Duration {
	return duration.Shorter(m.TimeToLive, t.DefaultMessageTimeToLive)
}

// mayPrecedeDefault reports whether a message that was enqueued at an instant may have another default
// than today's. A default that the entity was made with has no other before it.
func (t *entitySettings) mayPrecedeDefault(enqueued time.Time) bool {
	isFirst := !t.created.IsZero() && t.DefaultSince.Sub(t.created) < search.WindowMargin
	return !isFirst && enqueued.Before(t.DefaultSince.Add(search.WindowMargin))
}

// isEndless reports whether m states no deadline, and its entity gives it none. One that was
// scheduled got its time to live at its send.
func (t *entitySettings) isEndless(m *link.Message) bool {
	statesNone := m.TimeToLive == 0 && !search.StatesDeadline(m)
	return t.known && t.DefaultMessageTimeToLive == 0 && statesNone && m.ScheduledEnqueueTime.IsZero() && !m.EnqueuedTime.Before(t.DefaultSince.Add(search.StampPrecision))
}

// showSubscriptions makes the series of subscriptions of known topics, at 0: only then the first
// missed deadline is an increase.
func (w *Worker) showSubscriptions(ctx context.Context) {
	for _, name := range w.cfg.Entities {
		if w.cfg.Describe == nil {
			return
		}
		info, err := w.cfg.Describe(ctx, name, time.Time{})
		if err != nil {
			continue // the reader of settings logs it, and a companion that is due asks again
		}
		for _, s := range info.Subscriptions {
			w.metrics.Show(address.SubscriptionPath(name, s.Name))
		}
	}
}
