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
)

// entitySettings is how an entity is configured here and in its namespace.
type entitySettings struct {
	Settings // with the effective default time to live

	known         bool // its description is known
	topic         bool
	subscriptions []string      // of a topic
	shortest      time.Duration // default time to live of a topic and its subscriptions; 0: none
	sessions      bool          // it requires sessions
	drops         bool          // it drops expired messages
	lock          time.Duration // its lock duration; 0: unknown
	unlisted      bool          // a subscription that its topic does not have
	partitioned   bool          // sequence numbers are not in the order of time
	forwardTo     string        // where it forwards messages; "": nowhere
	forwardDead   string        // where it forwards dead letters; "": nowhere
}

// describe finds out the settings of e for a check of due. A cached description is enough,
// except for the subscriptions of a topic: all that existed at the send must be known.
//
// Without the right to read descriptions, e counts as a queue: the broker itself reports that it
// requires sessions or does not exist. While an answer may come, describe fails, since a topic that
// is checked like a queue would seem empty.
func (e *entity) describe(ctx context.Context, due []*watch) error {
	name, subscription := address.SplitSubscription(e.name)
	e.settings = entitySettings{Settings: e.w.cfg.Settings(ctx, name), sessions: e.w.states.get(e.key).sessions}
	t := &e.settings
	if e.w.cfg.Describe == nil {
		return nil
	}
	info, err := e.w.cfg.Describe(ctx, name, e.settingsAsOf)
	if err == nil && info.Kind == entities.Topic && subscription == "" {
		info, err = e.w.cfg.Describe(ctx, name, e.asOf(due))
	}
	switch {
	case errors.Is(err, entities.ErrNotFound) || errors.Is(err, entities.ErrNoRight):
		return nil
	case err != nil:
		return err
	}
	t.DefaultMessageTimeToLive = duration.Shorter(t.DefaultMessageTimeToLive, info.DefaultMessageTimeToLive)
	t.known, t.partitioned, t.shortest = true, info.Partitioned, t.DefaultMessageTimeToLive
	t.DefaultSince, t.DefaultStated = info.UpdatedAt, info.Kind == entities.Queue
	if subscription == "" {
		e.noteCreation(&info, nil)
		t.topic = info.Kind == entities.Topic
		for _, s := range info.Subscriptions {
			t.subscriptions = append(t.subscriptions, s.Name)
			e.w.metrics.Show(address.SubscriptionPath(e.name, s.Name))
		}
		if !t.topic {
			t.lock = info.LockDuration
			t.apply(info.RequiresSession, info.DeadLetteringOnMessageExpiration, info.ForwardTo, info.ForwardDeadLetteredMessagesTo)
		}
	}
	t.unlisted = subscription != "" && info.Kind == entities.Topic
	for _, s := range info.Subscriptions {
		t.shortest = duration.Shorter(t.shortest, s.DefaultMessageTimeToLive)
		if strings.EqualFold(s.Name, subscription) {
			t.unlisted = false
			e.noteCreation(&info, &s)
			t.DefaultMessageTimeToLive = duration.Shorter(t.DefaultMessageTimeToLive, s.DefaultMessageTimeToLive)
			t.DefaultSince = duration.Later(t.DefaultSince, s.UpdatedAt)
			t.lock = s.LockDuration
			t.apply(s.RequiresSession, s.DeadLetteringOnMessageExpiration, s.ForwardTo, s.ForwardDeadLetteredMessagesTo)
		}
	}
	e.work.Cursor, e.dead.Cursor = t.partitioned, t.partitioned
	return nil
}

// unordered reports whether sequence numbers are not in the order of arrival: the entity is
// partitioned, by its description or by the numbers that a peek has shown.
func (e *entity) unordered() bool { return e.settings.partitioned || e.work.Cursor }

// apply sets the settings that queues and subscriptions share.
func (t *entitySettings) apply(sessions, deadLetters bool, forwardTo, forwardDead string) {
	t.sessions, t.drops = sessions, !deadLetters
	t.forwardTo, t.forwardDead = forwardTo, forwardDead
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
