// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"overdue/alert"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// Shared records which events the workers of several processes have notified of. A call takes
// about 25 ms at most. After an error, a worker relies on its own record.
type Shared interface {
	// Begin claims an event. done: some process has notified of it. Neither mine nor done: another
	// process has claimed it.
	Begin(ctx context.Context, event string) (mine, done bool, err error)
	// End reports the outcome of a claim.
	End(ctx context.Context, event string, done bool) error
}

const (
	// claimWait is how long a worker leaves an event to the process that claimed it: an attempt of
	// that process may take 30 s by default, after others have taken budget.
	claimWait = 30*time.Second + budget
	// claimRetry is how long it waits before it asks again.
	claimRetry = 500 * time.Millisecond
)

// A notification is one event on its way to all sinks.
type notification struct {
	n      *Notifier
	ctx    context.Context
	entity string
	ref    *scheduler.Reference
	missed *scheduler.Missed
	key    key
	giveUp time.Time // by our clock: when the claim of another process counts no more
	mine   bool      // this process has claimed the event

	sinks []sink
	errs  []error // of the sinks, each written once
	open  atomic.Int32
}

// Notify sends the event of m, the message of ref, to every sink that has not taken it, and calls
// ended with the result. It does not block: a slow sink must not delay the next check.
//
// Another call may be notifying of the same event. Both end with the result of that one: both may
// belong to one companion that came back, and otherwise the event would be lost.
func (n *Notifier) Notify(ctx context.Context, entity string, ref *scheduler.Reference, m *scheduler.Missed, ended func(Result)) {
	e := &notification{
		n:      n,
		ctx:    ctx,
		entity: entity,
		ref:    ref,
		missed: m,
		giveUp: time.Now().Add(claimWait),
	}
	e.key = keyOf(e.event().ID)
	switch {
	case !n.cfg.Record.begin(e.key, ended):
	case n.cfg.Shared == nil:
		e.send()
	default:
		e.claim()
	}
}

// event makes the event each time: those that wait would take much memory.
func (e *notification) event() alert.Event {
	return EventOf(e.n.cfg.Namespace, e.entity, e.ref, e.missed)
}

// claim sends the event, unless another process notifies of it.
func (e *notification) claim() {
	var done bool
	var failed error
	e.n.claims.Put(&Job{
		Send: func() error {
			e.mine, done, failed = e.n.cfg.Shared.Begin(e.ctx, e.event().ID)
			return nil
		},
		End: func(notAsked error) {
			off := (*PutOff)(nil)
			isElsewhere := !e.mine && failed == nil
			switch {
			case errors.As(notAsked, &off):
				e.n.cfg.Record.end(e.key, Result{Taken: e.missed.TakenBy, Err: off, Wait: off.For})
			case done:
				e.n.cfg.Record.end(e.key, Result{})
			case isElsewhere && time.Now().Before(e.giveUp):
				time.AfterFunc(claimRetry, e.claim)
			default:
				e.send()
			}
		},
	})
}

// send puts the event in the line of each sink.
func (e *notification) send() {
	e.sinks = *e.n.sinks.Load()
	e.errs = make([]error, len(e.sinks))
	event := e.event()
	if e.ref.Missed == nil {
		e.n.cfg.Begun(e.entity, &event)
	}
	e.open.Store(1) // this function
	for i := range e.sinks {
		s := &e.sinks[i]
		if slices.Contains(e.missed.TakenBy, s.Name()) {
			continue
		}
		e.open.Add(1)
		isCounted := s.groups == nil && delivers(s, &event) // a group counts its own notifications
		s.line.Put(&Job{
			Send: func() error { return s.Alert(e.ctx, e.event()) },
			End: func(err error) {
				if isCounted && !errors.As(err, new(*PutOff)) {
					e.n.cfg.Delivered(s.Name(), err)
				}
				if err != nil {
					e.errs[i] = fmt.Errorf("%s: %w", s.Name(), err)
					e.showUntaken(s, err)
				}
				e.endSink()
			},
		})
	}
	e.endSink()
}

// endSink ends the notification with its last sink.
func (e *notification) endSink() {
	if e.open.Add(-1) > 0 {
		return
	}
	r := Result{Err: join(e.errs...)}
	for i, err := range e.errs {
		off := (*PutOff)(nil)
		switch {
		case err == nil:
			r.Taken = append(r.Taken, e.sinks[i].Name())
		case errors.As(err, &off):
			r.Failed, r.Wait = r.Failed || off.failed(), max(r.Wait, off.For)
		default:
			r.Failed = true
		}
	}
	if !e.mine {
		e.n.cfg.Record.end(e.key, r)
		return
	}
	e.n.claims.Put(&Job{
		Send: func() error {
			id := e.event().ID
			if err := e.n.cfg.Shared.End(e.ctx, id, r.Err == nil); err != nil {
				e.n.log.Debug("notification not recorded for other monitors", zap.String("event", id), zap.Error(err))
			}
			return nil
		},
		End: func(error) { e.n.cfg.Record.end(e.key, r) },
	})
}

// showUntaken shows operators that a sink has not taken the event so far.
func (e *notification) showUntaken(s *sink, err error) {
	if off := (*PutOff)(nil); errors.As(err, &off) && !off.failed() {
		err = nil
	}
	if h, ok := find[interface{ Untaken(alert.Event, error) }](s.Alerter); ok {
		h.Untaken(e.event(), err)
	}
}

// delivers reports whether a delivers e. Filters accept other events without delivery, and that
// says nothing about the sink behind them.
func delivers(a alert.Alerter, e *alert.Event) bool {
	type filter interface {
		Passes(*alert.Event) bool
		Unwrap() alert.Alerter
	}
	for {
		f, ok := find[filter](a)
		if !ok || !f.Passes(e) {
			return !ok
		}
		a = f.Unwrap()
	}
}

// join is errors.Join on one line: the error becomes the description of a dead letter.
func join(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return oneLine{err}
	}
	return nil
}

type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }
