// SPDX-License-Identifier: Apache-2.0

// Package catalog is the knowledge that one process has of queues and topics. It has their settings
// from the namespace, settings from the configuration where the namespace states none, and the
// settings by which the operator wants them monitored.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/servicebus/entities"
	"overdue/monitor"
	"overdue/monitor/adopt"
	"overdue/proxy"
)

// unreachableFor is how long a namespace may not answer before the monitor goes by what it sees of
// an entity alone. Sooner, a topic would be taken for a queue that is empty.
const unreachableFor = 15 * time.Second

// Catalog has the settings of queues and topics that are known. They come from the namespace, or
// from the configuration where the namespace states none. It also has the settings by which the
// operator wants them monitored.
type Catalog struct {
	log     *zap.Logger
	store   *entities.Store
	noticed notices
	current atomic.Pointer[View]
	changed chan struct{} // gets a value when current has changed

	described     atomic.Pointer[func(name string, info *entities.Info)] // see OnDescribed
	subscriptions sync.Map                                               // those of each listed topic that was read: names, by its lower-case name
}

// A View is what one configuration says of entities. It does not change: a configuration that takes
// the place of another brings its own.
type View struct {
	cfg     *config.Config
	listed  map[string]int  // in cfg.Monitor.Entities, by lower-case name
	assumed []entities.Info // what the configuration says, by the same number
}

// View is what the configuration in force says.
func (k *Catalog) View() *View { return k.current.Load() }

// Close ends the reads that are under way.
func (k *Catalog) Close() { k.store.Close() }

// New makes Catalog from a source. version is that of entities.Config.
func New(c *config.Config, source entities.Source, version func() uint64, log *zap.Logger) *Catalog {
	k := &Catalog{log: log, changed: make(chan struct{}, 1)}
	k.current.Store(NewView(c))
	k.store = entities.New(entities.Config{Source: source, Version: version, Heard: k.onRead})
	return k
}

// OnDescribed has f called with each description of a monitored entity that is read. f must not
// call the Catalog.
func (k *Catalog) OnDescribed(f func(name string, info *entities.Info)) { k.described.Store(&f) }

// NewView is the View of a configuration.
func NewView(c *config.Config) *View {
	w := &View{cfg: c, listed: map[string]int{}}
	for i := range c.Monitor.Entities {
		w.listed[strings.ToLower(c.Monitor.Entities[i].Name())] = i
		w.assumed = append(w.assumed, assumedInfo(&c.Monitor.Entities[i]))
	}
	return w
}

// Reconfigure puts another configuration into force, for sends and checks from now on.
func (k *Catalog) Reconfigure(c *config.Config) {
	k.current.Store(NewView(c))
	k.noticed.forget()
	select {
	case k.changed <- struct{}{}:
	default: // Run has not got to the last one
	}
}

// Run asks for everything that is listed, so that what is missing is logged at the start, and no
// send waits. Where nothing is listed the monitor queue shows whether anything can be asked.
func (k *Catalog) Run(ctx context.Context) error {
	for {
		c := k.current.Load().cfg
		names := c.AllMonitorQueues().Names()
		for i := range c.Monitor.Entities {
			names = append(names, c.Monitor.Entities[i].Name())
		}
		for _, name := range names {
			if _, err := k.store.Lookup(ctx, name); err != nil && ctx.Err() == nil {
				k.log.Debug("settings of an entity are not known", zap.String("work_queue", name), zap.Error(err)) // onRead has logged it
			}
		}
		select {
		case <-k.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// Entity is what the list of monitored entities says of a name, and where it stands there; nil if
// it is not listed.
func (w *View) Entity(name string) (e *config.Entity, i int) {
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
// but the monitor queue, and those that get events.
func (w *View) excluded(name string) bool {
	if len(w.listed) == 0 {
		return w.cfg.AllMonitorQueues().Has(name) || w.cfg.IsSink(name)
	}
	e, _ := w.Entity(name)
	return e == nil
}

// Excluded is that of the View in force.
func (k *Catalog) Excluded(name string) bool { return k.current.Load().excluded(name) }

// Known are the queues and topics that were asked for and that are monitored: those with sends
// among them.
func (k *Catalog) Known() []string { return slices.DeleteFunc(k.store.Names(), k.Excluded) }

// Settings are those of the proxy, which asks at every send.
func (k *Catalog) Settings(name string) proxy.Settings {
	w := k.current.Load()
	if w.excluded(name) {
		return proxy.Settings{}
	}
	info, err := k.store.Cached(name)
	if err == entities.ErrUnknown { //nolint:errorlint // it is never wrapped, and this is asked at every send
		return proxy.Settings{Unknown: true}
	}
	return w.proxied(name, info, err)
}

// Learn returns the settings of an entity, and reads them first where they are unknown.
func (k *Catalog) Learn(ctx context.Context, name string) (proxy.Settings, error) {
	info, err := k.store.Lookup(ctx, name)
	if err != nil && ctx.Err() != nil {
		return proxy.Settings{}, err
	}
	return k.current.Load().proxied(name, info, err), nil
}

func (w *View) proxied(name string, info entities.Info, err error) proxy.Settings {
	e, i := w.Entity(name)
	switch {
	case err != nil && e != nil:
		info = w.assumed[i]
	case err != nil:
		info = entities.Info{}
	}
	s := proxy.Settings{Monitored: true, StampTTL: true, Deadline: w.cfg.Monitor.Deadline, DefaultMessageTimeToLive: info.DefaultMessageTimeToLive}
	if e != nil {
		s.Deadline, s.StampTTL = e.Deadline, e.StampTTL
		s.CompleteWithin, s.WarnBefore = e.CompleteWithin, e.WarnBefore
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

// Monitored are the settings of the monitor, for everything that has a companion, listed or not:
// the list may be shorter now than when the companion was written. How the entity was made,
// describe says; the time to live is here where it is only the configuration that knows it.
func (k *Catalog) Monitored(ctx context.Context, name string) monitor.Settings {
	w := k.current.Load()
	e, _ := w.Entity(name)
	if e == nil {
		return monitor.Settings{Deadline: w.cfg.Monitor.Deadline}
	}
	s := monitor.Settings{Strategy: e.Expire, Deadline: e.Deadline, CompleteWithin: e.CompleteWithin, WarnBefore: e.WarnBefore}
	if _, err := k.store.Lookup(ctx, name); err != nil {
		s.DefaultMessageTimeToLive = e.DefaultMessageTimeToLive
	}
	return s
}

// Describe says how an entity was made, for the monitor, see monitor.Config.
func (k *Catalog) Describe(ctx context.Context, name string, since time.Time) (entities.Info, error) {
	info, err := k.store.LookupSince(ctx, name, since)
	if err == nil || ctx.Err() != nil || errors.Is(err, entities.ErrNotFound) {
		return info, err
	}
	// Without sessions in the configuration the monitor asks the broker itself; what the configuration
	// says has to be all.
	w := k.current.Load()
	if e, i := w.Entity(name); e != nil && (e.Topic != "" || w.gives(e, i, "requiresSession")) {
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

// Adoptions are the queues and topics whose messages are watched although they did not pass an
// endpoint.
func Adoptions(c *config.Config) (all []adopt.Entity) {
	for i := range c.Monitor.Entities {
		if e := &c.Monitor.Entities[i]; e.Adopt {
			all = append(all, adopt.Entity{Entity: e.Name(), Every: e.AdoptEvery})
		}
	}
	return all
}
