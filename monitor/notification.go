// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"overdue/alert"
	"overdue/monitor/notify"
)

// A notification is one event on its way to all sinks.
type notification struct {
	w      *Worker
	ctx    context.Context
	entity string
	watch  *watch
	before []string            // sinks that had taken it before
	end    func(notify.Result) // called once

	mu   sync.Mutex
	all  []alert.Alerter
	left int
	errs []error // of all
}

func (n *notification) event() alert.Event { return n.w.eventOf(n.entity, n.watch) }

// send puts the event in the line of each sink.
func (n *notification) send() {
	current := n.w.sinks.Load()
	if n.watch.ref.Missed == nil {
		e := n.event()
		n.w.metrics.notified(n.entity, &e)
	}
	n.all, n.errs, n.left = current.alerters, make([]error, len(current.alerters)), 1
	for i, a := range current.alerters {
		if slices.Contains(n.before, a.Name()) {
			continue
		}
		n.mu.Lock()
		n.left++
		n.mu.Unlock()
		current.lines[i].Put(&notify.Job{
			Send: func() error { return a.Alert(n.ctx, n.event()) },
			End: func(err error) {
				if current.groups[a.Name()] == nil && !isPutOff(err) { // a group counts its own notifications
					n.w.metrics.alert(a.Name(), err)
				}
				n.over(i, err)
			},
		})
	}
	n.over(-1, nil)
}

// over records the result of sink i. The last one ends the notification.
func (n *notification) over(i int, err error) {
	n.mu.Lock()
	if err != nil {
		n.errs[i] = fmt.Errorf("%s: %w", n.all[i].Name(), err)
	}
	n.left--
	last := n.left == 0
	n.mu.Unlock()
	if !last {
		return
	}
	r := notify.Result{Err: notify.Join(n.errs...)}
	for i, a := range n.all {
		if n.errs[i] == nil {
			r.Taken = append(r.Taken, a.Name())
		} else if !isPutOff(n.errs[i]) {
			r.Failed = true
		}
	}
	n.end(r)
}

func isPutOff(err error) bool {
	var off *notify.PutOff
	return errors.As(err, &off)
}
