// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"overdue/alert"
	"overdue/scheduler"
)

// A notification is one event on its way to all sinks.
type notification struct {
	n      *Notifier
	ctx    context.Context
	entity string
	ref    *scheduler.Reference
	missed *scheduler.Missed
	end    func(Result) // called once

	mu   sync.Mutex
	all  []alert.Alerter
	left int
	errs []error // of all
}

// event makes the event each time: those that wait would take much memory.
func (e *notification) event() alert.Event {
	return EventOf(e.n.cfg.Namespace, e.entity, e.ref, e.missed)
}

// send puts the event in the line of each sink.
func (e *notification) send() {
	current := e.n.sinks.Load()
	ev := e.event()
	if e.ref.Missed == nil {
		e.n.cfg.Begun(e.entity, &ev)
	}
	e.all, e.errs, e.left = current.alerters, make([]error, len(current.alerters)), 1
	for i, a := range current.alerters {
		if slices.Contains(e.missed.TakenBy, a.Name()) {
			continue
		}
		e.mu.Lock()
		e.left++
		e.mu.Unlock()
		counts := delivers(a, &ev)
		current.lines[i].Put(&Job{
			Send: func() error { return a.Alert(e.ctx, e.event()) },
			End: func(err error) {
				// A group counts its own notifications.
				if current.groups[a.Name()] == nil && !isPutOff(err) && counts {
					e.n.cfg.Delivered(a.Name(), err)
				}
				if err != nil {
					e.recordFailure(a, err)
				}
				e.over(i, err)
			},
		})
	}
	e.over(-1, nil)
}

// over records the result of sink i. The last one ends the notification.
func (e *notification) over(i int, err error) {
	e.mu.Lock()
	if err != nil {
		e.errs[i] = fmt.Errorf("%s: %w", e.all[i].Name(), err)
	}
	e.left--
	last := e.left == 0
	e.mu.Unlock()
	if !last {
		return
	}
	r := Result{Err: Join(e.errs...)}
	for i, a := range e.all {
		off := (*PutOff)(nil)
		switch {
		case e.errs[i] == nil:
			r.Taken = append(r.Taken, a.Name())
		case errors.As(e.errs[i], &off):
			r.Failed, r.Wait = r.Failed || off.failed(), max(r.Wait, off.For)
		default:
			r.Failed = true
		}
	}
	e.end(r)
}

// recordFailure records for operators that a has not taken the event so far.
func (e *notification) recordFailure(a alert.Alerter, err error) {
	for a := range behind(a) {
		if r, ok := a.(interface{ Untaken(alert.Event, error) }); ok {
			if off := (*PutOff)(nil); errors.As(err, &off) && !off.failed() {
				err = nil
			}
			r.Untaken(e.event(), err)
			return
		}
	}
}

// delivers reports whether a delivers e. Filters accept other events without delivery, and that says
// nothing about the sink behind them.
func delivers(a alert.Alerter, e *alert.Event) bool {
	for a := range behind(a) {
		if f, ok := a.(interface{ Passes(*alert.Event) bool }); ok && !f.Passes(e) {
			return false
		}
	}
	return true
}

// local reports whether a waits for nothing on the network.
func local(a alert.Alerter) bool {
	for a := range behind(a) {
		if _, is := a.(interface{ Local() }); is {
			return true
		}
	}
	return false
}

// behind yields a, and what it wraps.
func behind(a alert.Alerter) iter.Seq[alert.Alerter] {
	return func(yield func(alert.Alerter) bool) {
		for yield(a) {
			w, ok := a.(interface{ Unwrap() alert.Alerter })
			if !ok {
				return
			}
			a = w.Unwrap()
		}
	}
}

func isPutOff(err error) bool {
	var off *PutOff
	return errors.As(err, &off)
}
