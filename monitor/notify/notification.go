// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// claimWait is how long a worker leaves an event to the process that claimed it: an attempt of that
// process may take 30 s by default, after others have taken longestWait.
const claimWait = 30*time.Second + longestWait

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

	mu     sync.Mutex
	open   int    // sinks for which it has not ended
	result Result // of the others
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

// claim sends the event, unless another process notifies of it. Then it asks again each second.
func (e *notification) claim() {
	var done bool
	var failed error
	e.n.claims.put(&job{
		send: func() error {
			e.mine, done, failed = e.n.cfg.Shared.Begin(e.ctx, e.event().ID)
			return nil
		},
		end: func(notAsked error) {
			off := (*putOff)(nil)
			isElsewhere := !e.mine && failed == nil
			switch {
			case errors.As(notAsked, &off):
				e.n.cfg.Record.end(e.key, Result{Taken: e.missed.TakenBy, Err: off, Wait: off.wait})
			case done:
				e.n.cfg.Record.end(e.key, Result{})
			case isElsewhere && time.Now().Before(e.giveUp):
				time.AfterFunc(time.Second, e.claim)
			default:
				e.send()
			}
		},
	})
}

// send puts the event in the line of each sink.
func (e *notification) send() {
	sinks := *e.n.sinks.Load()
	event := e.event()
	if e.ref.Missed == nil {
		e.n.cfg.Begun(e.entity, &event)
	}
	e.open = len(sinks)
	if e.open == 0 {
		e.end()
	}
	for i := range sinks {
		s := &sinks[i]
		if slices.Contains(e.missed.TakenBy, s.Name()) {
			e.endSink(s.Name(), nil)
			continue
		}
		isCounted := s.groups == nil && delivers(s.Alerter, &event) // a group counts its own notifications
		s.line.put(&job{
			send: func() error { return s.Alert(e.ctx, e.event()) },
			end: func(err error) {
				if isCounted && !errors.As(err, new(*putOff)) {
					e.n.cfg.Delivered(s.Name(), err)
				}
				if err != nil {
					e.showUntaken(s, err)
				}
				e.endSink(s.Name(), err)
			},
		})
	}
}

// endSink ends the notification of one sink, and with the last one all of it.
func (e *notification) endSink(sink string, err error) {
	off := (*putOff)(nil)
	isOff := errors.As(err, &off)
	e.mu.Lock()
	r := &e.result
	switch {
	case err == nil:
		r.Taken = append(r.Taken, sink)
	case isOff:
		r.Failed, r.Wait = r.Failed || off.failed(), max(r.Wait, off.wait)
	default:
		r.Failed = true
	}
	if err != nil {
		r.Err = join(r.Err, fmt.Errorf("%s: %w", sink, err))
	}
	e.open--
	last := e.open == 0
	e.mu.Unlock()
	if last {
		e.end()
	}
}

// join is errors.Join on one line: the error becomes the description of a dead letter.
func join(first, next error) error {
	if first == nil {
		return next
	}
	return fmt.Errorf("%w; %w", first, next)
}

// end ends the notification, and its claim.
func (e *notification) end() {
	if !e.mine {
		e.n.cfg.Record.end(e.key, e.result)
		return
	}
	e.n.claims.put(&job{
		send: func() error {
			id := e.event().ID
			if err := e.n.cfg.Shared.End(e.ctx, id, e.result.Err == nil); err != nil {
				e.n.log.Debug("notification not recorded for other monitors", zap.String("event", id), zap.Error(err))
			}
			return nil
		},
		end: func(error) { e.n.cfg.Record.end(e.key, e.result) },
	})
}

// showUntaken shows operators that a sink has not taken the event so far.
func (e *notification) showUntaken(s *sink, err error) {
	if off := (*putOff)(nil); errors.As(err, &off) && !off.failed() {
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
