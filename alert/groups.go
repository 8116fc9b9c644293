// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"overdue/internal/pace"
	"overdue/internal/servicebus/duration"
)

// maxGroups bounds the groups in memory. The events of any further groups share one group.
const maxGroups = 10_000

// Labels that events can be grouped by.
var labelOf = map[string]func(*Event) string{
	"type":         func(e *Event) string { return e.Type },
	"entity":       func(e *Event) string { return e.Data.Entity },
	"subscription": func(e *Event) string { return e.Data.Subscription },
	"strategy":     func(e *Event) string { return e.Data.Strategy },
	"reason":       func(e *Event) string { return e.Data.DeadLetterReason },
}

// An Outbox keeps digests until they are due, even if this process dies. Keep returns once d is
// durable, or with an error after a bounded time.
type Outbox interface {
	Keep(ctx context.Context, due time.Time, d Digest) error
	// Now returns the time of the clock that decides when a digest is due.
	Now() time.Time
}

// GroupsConfig configures Groups. Sink, Outbox and Source are required.
type GroupsConfig struct {
	Sink   Notifier
	Outbox Outbox
	Source string // of the notifications: sb://<namespace>

	By           []string      // labels; the type is always one of them; nil = type, entity and subscription
	Wait         time.Duration // between the first event of a group and its notification
	Interval     time.Duration // between notifications of a group that fires; at least a second
	ResolveAfter time.Duration // without events, until a group is resolved; at least a second
	Resend       time.Duration // between notifications of a group without new events; 0 = as the sink requires

	// DeadLetters counts the dead letters of an entity, for the notification that a group of missed
	// deadlines is resolved. nil: they are not counted.
	DeadLetters func(ctx context.Context, entity, subscription string) (DeadLetters, error)

	Pool    Pool        // nil: each process sends its own notifications
	Sight   *Sight      // nil: this process sees all events
	Tracker tracker     // nil: nobody wants to know
	Log     *zap.Logger // nil: none
}

// A tracker shows people what became of an event for a sink of groups. Its calls must not block.
type tracker interface {
	// Queued: e is in a digest of the group that is due then.
	Queued(sink, group string, due time.Time, e *Event)
	// Notified: the sink was notified of all events of the group whose digests were due by then, or
	// refused that.
	Notified(sink, group string, due time.Time, refused error)
}

// Sight says whether the process sees events. The zero value is blind: that no event came says
// nothing then, so no group is resolved.
type Sight struct{ since atomic.Pointer[time.Time] }

// Regain notes that events are seen from an instant of the outbox's clock on.
func (s *Sight) Regain(since time.Time) { s.since.Store(&since) }

// Lose notes that events are not seen.
func (s *Sight) Lose() { s.since.Store(nil) }

// from returns since when events are seen, which is now where they are not.
func (s *Sight) from(now time.Time) time.Time {
	if s == nil {
		return time.Time{}
	}
	if since := s.since.Load(); since != nil {
		return *since
	}
	return now
}

// Groups is an [Alerter] that collects events and notifies its sink by group. It notifies of the
// first events after Wait and of further events every Interval. It notifies of the end once no
// event came for ResolveAfter and the sink has all of them.
//
// Alert returns nil once the event is in a digest on the outbox. State in memory only saves
// operations: a process that takes over finds digests and reminders on the outbox and continues.
type Groups struct {
	cfg      GroupsConfig
	notified func(err error)

	mu       sync.Mutex
	sees     time.Time // by the outbox's clock: since when everything that is due comes in time
	sinkPace pace.Pace
	groups   map[string]*group
	closed   bool
	stop     context.CancelFunc
	ctx      context.Context
	running  sync.WaitGroup
}

// group is the state of one group in this process. Groups.mu guards it.
type group struct {
	labels map[string]string

	incoming []incoming // events not yet on the outbox
	keeping  bool
	arrived  time.Time // the latest of them, like the next two by the outbox's clock
	next     time.Time // when the digest is due that gets the next event
	earliest time.Time // the next notification: after Interval, or the next attempt

	due       []DueDigest
	notifying bool

	since, last time.Time // of the events that the sink knows; since is zero unless the group fires
	total       int
	reminder    time.Time // when the reminder on the outbox is due; zero: there is none
}

type incoming struct {
	event Event
	kept  chan error
}

// DueDigest is a digest that has become due. Its owner calls one of the two functions, once.
type DueDigest struct {
	Digest  Digest
	Done    func(refused error) // no longer needed; with an error, the digest is undeliverable
	Release func()              // leaves the digest to any process
}

// NewGroups makes the Groups of one sink. Close stops them.
func NewGroups(cfg GroupsConfig) (*Groups, error) {
	if cfg.Sink == nil || cfg.Outbox == nil || cfg.Source == "" {
		return nil, errors.New("alert: groups need a sink, an outbox and a source")
	}
	if cfg.By == nil {
		cfg.By = []string{"type", "entity", "subscription"}
	}
	for _, name := range cfg.By {
		if labelOf[name] == nil {
			return nil, fmt.Errorf("alert: events have no label %q to group by", name)
		}
	}
	if !slices.Contains(cfg.By, "type") {
		// A deadline that is near must not count as one that was missed.
		cfg.By = append([]string{"type"}, cfg.By...)
	}
	if cfg.Interval < time.Second || cfg.ResolveAfter < time.Second {
		return nil, errors.New("alert: interval and resolveAfter of a group must be at least one second")
	}
	if _, ok := cfg.Sink.(*alertmanager); ok && cfg.Resend == 0 {
		cfg.Resend = alertmanagerResend
	}
	if cfg.Tracker == nil {
		cfg.Tracker = noTracker{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	g := &Groups{cfg: cfg, groups: map[string]*group{}, sees: cfg.Outbox.Now()}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g, nil
}

// OnNotify makes g call f with the result of each notification. Call it before the first event.
func (g *Groups) OnNotify(f func(err error)) { g.notified = f }

// Name returns the name of the sink.
func (g *Groups) Name() string { return g.cfg.Sink.Name() }

// Alert returns once e is on the outbox, in the digest for the next notification of its group.
func (g *Groups) Alert(ctx context.Context, e Event) error {
	in := incoming{e, make(chan error, 1)}
	g.mu.Lock()
	gr := g.groupLocked(g.labelsOf(&e))
	gr.incoming = append(gr.incoming, in)
	if !gr.keeping {
		gr.keeping = true
		go g.keep(gr)
	}
	g.mu.Unlock()
	select {
	case err := <-in.kept:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *Groups) labelsOf(e *Event) map[string]string {
	labels := make(map[string]string, len(g.cfg.By))
	for _, name := range g.cfg.By {
		if value := labelOf[name](e); value != "" {
			labels[name] = value
		}
	}
	if slices.Contains(g.cfg.By, "entity") {
		maps.Copy(labels, e.Data.Labels) // no label of an entity is called as one of labelOf
	}
	return labels
}

// groupLocked returns the group with these labels.
func (g *Groups) groupLocked(labels map[string]string) *group {
	k := key(labels)
	if gr := g.groups[k]; gr != nil {
		return gr
	}
	if len(g.groups) >= maxGroups {
		g.evictIdleLocked()
	}
	if len(g.groups) >= maxGroups {
		labels = map[string]string{"overflow": "true"}
		k = key(labels)
		if gr := g.groups[k]; gr != nil {
			return gr
		}
	}
	gr := &group{labels: labels}
	g.groups[k] = gr
	return gr
}

func (g *Groups) evictIdleLocked() {
	now := g.cfg.Outbox.Now()
	for k, gr := range g.groups {
		if gr.idle(now) {
			delete(g.groups, k)
		}
	}
}

// idle reports whether nothing of the group is on its way.
func (gr *group) idle(now time.Time) bool {
	return !gr.keeping && !gr.notifying && gr.since.IsZero() && gr.reminder.IsZero() && !gr.next.After(now) && !gr.earliest.After(now)
}

// keep writes digests until no event is left. Events that come during a write share the next one.
func (g *Groups) keep(gr *group) {
	for {
		g.mu.Lock()
		ins := gr.incoming
		gr.incoming = nil
		if len(ins) == 0 {
			gr.keeping = false
			g.mu.Unlock()
			return
		}
		gr.arrived = g.cfg.Outbox.Now()
		if gr.next.Before(gr.arrived) {
			gr.next = gr.arrived.Add(g.cfg.Wait)
		}
		gr.next = duration.Later(gr.next, gr.earliest)
		due := gr.next
		g.mu.Unlock()
		d := Digest{Sink: g.Name(), Labels: gr.labels}
		for _, in := range ins {
			d.add(in.event)
		}
		err := g.cfg.Outbox.Keep(context.Background(), due, d) // Keep bounds its own time
		for i := range ins {
			if err == nil {
				g.cfg.Tracker.Queued(g.Name(), key(gr.labels), due, &ins[i].event)
			}
			ins[i].kept <- err
		}
	}
}

// Due hands over a digest for this sink that has become due. The goroutine that it starts ends when
// the group has no due digest left, or soon after Close.
func (g *Groups) Due(r DueDigest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		go r.Release()
		return
	}
	gr := g.groupLocked(r.Digest.Labels)
	if now := g.cfg.Outbox.Now(); r.Digest.Count == 0 && !gr.reminder.IsZero() && now.Sub(gr.reminder) > maxLate {
		g.sees = now
	}
	gr.due = append(gr.due, r)
	if !gr.notifying {
		gr.notifying = true
		g.running.Go(func() { g.run(gr) })
	}
}

// Close stops notifications and releases the digests at hand and all that become due later. Alert
// still works, since the last events have to be kept as well.
func (g *Groups) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	g.running.Wait()
}

type noTracker struct{}

func (noTracker) Queued(string, string, time.Time, *Event)  {}
func (noTracker) Notified(string, string, time.Time, error) {}
