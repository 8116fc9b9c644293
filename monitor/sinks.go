// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"overdue/alert"
	"overdue/monitor/notify"
)

// sinks holds the sinks of one configuration. It does not change; a new one replaces it.
type sinks struct {
	alerters []alert.Alerter
	lines    []*notify.Line           // of alerters
	groups   map[string]*alert.Groups // of alerters, by name
}

// SetAlerters replaces the sinks. Notifications that have started continue with the old ones.
// Groups that are not in all are closed: SetAlerters returns when they are, after a few seconds
// at most. It MUST NOT be called concurrently.
func (w *Worker) SetAlerters(all []alert.Alerter) {
	next := &sinks{alerters: all, groups: map[string]*alert.Groups{}}
	before := w.sinks.Load()
	for _, a := range all {
		w.metrics.showSink(a.Name())
		next.lines = append(next.lines, &notify.Line{Budget: notifyTime})
		g := alert.GroupsOf(a)
		if g == nil {
			continue
		}
		next.groups[g.Name()] = g
		if before == nil || before.groups[g.Name()] != g { // a group that stays may be sending
			g.OnNotify(func(err error) { w.metrics.alert(g.Name(), err) })
		}
	}
	w.sinks.Store(next)
	if before == nil {
		return
	}
	for name, g := range before.groups {
		if next.groups[name] != g {
			g.Close()
		}
	}
}

// leaveEvents leaves the events that still wait in line to the next worker.
func (w *Worker) leaveEvents() {
	w.claims.Stop()
	for _, l := range w.sinks.Load().lines {
		l.Stop()
	}
}
