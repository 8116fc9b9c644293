// SPDX-License-Identifier: Apache-2.0

package monitor

import "overdue/alert"

// sinks are who is notified, all of one configuration. They do not change; others take their place.
type sinks struct {
	alerters []alert.Alerter
	groups   map[string]*alert.Groups // of alerters, by name
}

// SetAlerters has all notified from now on, in the place of those before. Events that are being notified go on to whom they were
// meant for. Groups that are not among all any more are closed; SetAlerters returns when they are, after some seconds at
// most. It is for one caller at a time.
func (w *Worker) SetAlerters(all []alert.Alerter) {
	next := &sinks{alerters: all, groups: map[string]*alert.Groups{}}
	before := w.sinks.Load()
	for _, a := range all {
		g := alert.GroupsOf(a)
		if g == nil {
			continue
		}
		next.groups[g.Name()] = g
		if before == nil || before.groups[g.Name()] != g { // those that stay may be notification of a page just now
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
