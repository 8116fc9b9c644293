// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/servicebus/entities"
	"overdue/monitor"
	"overdue/proxy"
)

// unreachableFor is how long a namespace may not answer before the monitor goes by what it sees of
// an entity alone. Sooner, a topic would be taken for a queue that is empty.
const unreachableFor = 15 * time.Second

// knowledge is what is known of queues and topics: how the namespace says that they were made, how the
// configuration says that they were where the namespace does not tell, and how the operator wants them
// monitored.
type knowledge struct {
	log      *zap.Logger
	store    *entities.Store
	told     told
	wanted   atomic.Pointer[wishes]
	rewished chan struct{} // gets a value when wanted has changed
}

// wishes are what one configuration says of entities. They do not change; a configuration that takes the place of
// another brings its own.
type wishes struct {
	cfg     *config.Config
	listed  map[string]int  // in cfg.Monitor.Entities, by lower-case name
	assumed []entities.Info // what the configuration says, by the same number
}

// newKnowledge makes knowledge from a source. version is that of entities.Config.
func newKnowledge(c *config.Config, source entities.Source, version func() uint64, log *zap.Logger) *knowledge {
	k := &knowledge{log: log, rewished: make(chan struct{}, 1)}
	k.wanted.Store(newWishes(c))
	k.store = entities.New(entities.Config{Source: source, Version: version, Heard: k.heard})
	return k
}

func newWishes(c *config.Config) *wishes {
	w := &wishes{cfg: c, listed: map[string]int{}}
	for i := range c.Monitor.Entities {
		w.listed[strings.ToLower(c.Monitor.Entities[i].Name())] = i
		w.assumed = append(w.assumed, assumedInfo(&c.Monitor.Entities[i]))
	}
	return w
}

// wish puts another configuration's wishes into force, for sends and looks from now on.
func (k *knowledge) wish(c *config.Config) {
	k.wanted.Store(newWishes(c))
	k.told.forget()
	select {
	case k.rewished <- struct{}{}:
	default: // prime has not got to the last ones
	}
}

// prime asks for everything that is listed, so that what lacks is told at the start, and no send waits. Where
// nothing is listed the monitor queue shows whether anything can be asked.
func (k *knowledge) prime(ctx context.Context) error {
	for {
		c := k.wanted.Load().cfg
		names := []string{c.MonitorQueue}
		for i := range c.Monitor.Entities {
			names = append(names, c.Monitor.Entities[i].Name())
		}
		for _, name := range names {
			if _, err := k.store.Lookup(ctx, name); err != nil && ctx.Err() == nil {
				k.log.Debug("settings of an entity are not known", zap.String("work_queue", name), zap.Error(err)) // heard has told
			}
		}
		select {
		case <-k.rewished:
		case <-ctx.Done():
			return nil
		}
	}
}

// entity is what the list of monitored entities says of a name, and where it stands there; nil if it is not listed.
func (w *wishes) entity(name string) (e *config.Entity, i int) {
	i, ok := w.listed[name]
	if !ok {
		i, ok = w.listed[strings.ToLower(name)]
	}
	if !ok {
		return nil, 0
	}
	return &w.cfg.Monitor.Entities[i], i
}

// excluded: there is a list, and the name is not on it. Without a list everything is monitored
// but the queue that monitors, and those that are told of what it finds.
func (w *wishes) excluded(name string) bool {
	if len(w.listed) == 0 {
		return strings.EqualFold(name, w.cfg.MonitorQueue) || w.cfg.IsSink(name)
	}
	e, _ := w.entity(name)
	return e == nil
}

// excluded is that of the wishes in force.
func (k *knowledge) excluded(name string) bool { return k.wanted.Load().excluded(name) }

// settings are those of the proxy, which asks at every send.
func (k *knowledge) settings(name string) proxy.Settings {
	w := k.wanted.Load()
	if w.excluded(name) {
		return proxy.Settings{}
	}
	info, err := k.store.Cached(name)
	if err == entities.ErrUnknown { //nolint:errorlint // it is never wrapped, and this is asked at every send
		return proxy.Settings{Unknown: true}
	}
	return w.proxied(name, info, err)
}

// learn is settings for who waits.
func (k *knowledge) learn(ctx context.Context, name string) (proxy.Settings, error) {
	info, err := k.store.Lookup(ctx, name)
	if err != nil && ctx.Err() != nil {
		return proxy.Settings{}, err
	}
	return k.wanted.Load().proxied(name, info, err), nil
}

func (w *wishes) proxied(name string, info entities.Info, err error) proxy.Settings {
	e, i := w.entity(name)
	switch {
	case err != nil && e != nil:
		info = w.assumed[i]
	case err != nil:
		info = entities.Info{}
	}
	s := proxy.Settings{Monitored: true, StampTTL: true, Deadline: w.cfg.Monitor.Deadline, DefaultMessageTimeToLive: info.DefaultMessageTimeToLive}
	if e != nil {
		s.Deadline, s.StampTTL = e.Deadline, e.StampTTL
		s.CompleteWithin, s.WarnBefore = e.CompleteWithin, warningsOf(e)
	}
	drops := info.Kind == entities.Queue && !info.DeadLetteringOnMessageExpiration
	for i := range info.Subscriptions {
		sub := &info.Subscriptions[i]
		if ttl := sub.DefaultMessageTimeToLive; ttl > 0 && (s.SubscriptionTimeToLive == 0 || ttl < s.SubscriptionTimeToLive) {
			s.SubscriptionTimeToLive = ttl
		}
		drops = drops || !sub.DeadLetteringOnMessageExpiration
	}
	// Where the broker drops what expires, a time to live would take the message away before
	// the monitor can dead-letter it.
	s.StampTTL = s.StampTTL && !drops
	s.Findable = err == nil && findable(info) && (e == nil || e.Expire == "auto" || e.Expire == "native")
	return s
}

// findable: what expires there becomes a dead letter by itself, and stands where it was enqueued.
func findable(info entities.Info) bool {
	return info.Kind == entities.Queue && info.DeadLetteringOnMessageExpiration && !info.RequiresSession && !info.Partitioned &&
		info.ForwardTo == "" && info.ForwardDeadLetteredMessagesTo == ""
}

// monitored are the settings of the monitor, for everything that has a companion, listed or not: the list
// may be shorter now than when the companion was written. How the entity was made, describe says; the
// time to live is here where it is only the configuration that knows it.
func (k *knowledge) monitored(ctx context.Context, name string) monitor.Settings {
	w := k.wanted.Load()
	e, _ := w.entity(name)
	if e == nil {
		return monitor.Settings{Deadline: w.cfg.Monitor.Deadline}
	}
	s := monitor.Settings{Strategy: e.Expire, Deadline: e.Deadline, CompleteWithin: e.CompleteWithin, WarnBefore: warningsOf(e)}
	if _, err := k.store.Lookup(ctx, name); err != nil {
		s.DefaultMessageTimeToLive = e.DefaultMessageTimeToLive
	}
	return s
}

// describe says how an entity was made, for the monitor, see monitor.Config.
func (k *knowledge) describe(ctx context.Context, name string, since time.Time) (entities.Info, error) {
	info, err := k.store.LookupSince(ctx, name, since)
	if err == nil || ctx.Err() != nil || errors.Is(err, entities.ErrNotFound) {
		return info, err
	}
	// Whether it has sessions the broker would tell by itself; what the configuration says has to be all.
	w := k.wanted.Load()
	if e, i := w.entity(name); e != nil && (e.Topic != "" || w.gives(e, i, "requiresSession")) {
		return w.assumed[i], nil
	}
	var gone *entities.UnreachableError
	if errors.As(err, &gone) && time.Since(gone.Since) < unreachableFor {
		return entities.Info{}, err
	}
	return entities.Info{}, fmt.Errorf("%w: %w", entities.ErrNoRight, err)
}

// assumedInfo is how the configuration says that the entity was made.
func assumedInfo(e *config.Entity) entities.Info {
	info := entities.Info{
		Kind: entities.Queue, DefaultMessageTimeToLive: e.DefaultMessageTimeToLive,
		RequiresSession: e.RequiresSession, DeadLetteringOnMessageExpiration: e.DeadLetteringOnMessageExpiration,
	}
	if e.Topic != "" {
		info.Kind, info.DeadLetteringOnMessageExpiration = entities.Topic, false
	}
	for _, s := range e.Subscriptions {
		info.Subscriptions = append(info.Subscriptions, entities.Subscription{
			Name: s.Name, DefaultMessageTimeToLive: s.DefaultMessageTimeToLive,
			RequiresSession: s.RequiresSession, DeadLetteringOnMessageExpiration: s.DeadLetteringOnMessageExpiration,
		})
	}
	return info
}
