// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"sync/atomic"
	"time"

	"overdue/alert"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// budget bounds the attempts to notify one sink of one event. Then its companion is rewritten.
const budget = 10 * time.Second

// Config configures a Notifier.
type Config struct {
	Namespace string  // host or host:port, for the source of events
	Record    *Record // gets the events
	Shared    Shared  // nil: this process is the only one
	Scheduler *scheduler.Scheduler
	Now       func() time.Time // the clock of the broker, never ahead
	Yield     func()           // leaves digests to other monitors
	Begun     func(entity string, e *alert.Event)
	Delivered func(sink string, err error) // counts a delivery, or a notification of a group
	Log       *zap.Logger
}

// A Notifier hands events to the sinks.
type Notifier struct {
	cfg    Config
	log    *zap.Logger
	sinks  atomic.Pointer[sinks]
	claims Line // of events that are shared with other monitors
}

// sinks holds the sinks of one configuration. It does not change; a new one replaces it.
type sinks struct {
	alerters []alert.Alerter
	lines    []*Line                  // of alerters
	groups   map[string]*alert.Groups // of alerters, by name
}

// New makes a Notifier without sinks.
func New(cfg Config) *Notifier {
	n := &Notifier{cfg: cfg, log: cfg.Log, claims: Line{Budget: budget}}
	n.sinks.Store(&sinks{})
	return n
}

// SetSinks replaces the sinks. Notifications that have started continue with the old ones.
// Groups that are not in all are closed: SetSinks returns when they are, after a few seconds
// at most. It MUST NOT be called concurrently.
func (n *Notifier) SetSinks(all []alert.Alerter) {
	next, before := &sinks{alerters: all, groups: map[string]*alert.Groups{}}, n.sinks.Load()
	for _, a := range all {
		next.lines = append(next.lines, &Line{Budget: budget, Single: local(a)})
		g := alert.GroupsOf(a)
		if g == nil {
			continue
		}
		next.groups[g.Name()] = g
		if before.groups[g.Name()] != g { // a group that stays may be sending
			g.OnNotify(func(err error) { n.cfg.Delivered(g.Name(), err) })
		}
	}
	n.sinks.Store(next)
	for name, g := range before.groups {
		if next.groups[name] != g {
			g.Close()
		}
	}
}

// Close closes the groups.
func (n *Notifier) Close() {
	for _, g := range n.sinks.Load().groups {
		g.Close()
	}
}

// LeaveEvents leaves the events that still wait in line to the next worker.
func (n *Notifier) LeaveEvents() {
	n.claims.Stop()
	for _, l := range n.sinks.Load().lines {
		l.Stop()
	}
}

// Notify sends the event of m, the message of ref, to every sink that has not taken it, and calls
// end with the result. It does not block: a slow sink must not delay the next check.
//
// Another call may be notifying of the same event. Both end with the result of that one: both may
// belong to one companion that came back, and otherwise the event would be lost.
func (n *Notifier) Notify(ctx context.Context, entity string, ref *scheduler.Reference, m *scheduler.Missed, end func(Result)) {
	k := KeyOf(EventOf(n.cfg.Namespace, entity, ref, m).ID)
	if !n.cfg.Record.Begin(k, end) {
		return
	}
	e := &notification{n: n, ctx: ctx, entity: entity, ref: ref, missed: m, end: func(r Result) { n.cfg.Record.End(k, r) }}
	if n.cfg.Shared != nil {
		e.claim(time.Now().Add(claimWait))
		return
	}
	e.send()
}
