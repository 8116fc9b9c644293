// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/alert"
	"overdue/internal/redisstore"
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

// Mutes says which entities are muted. A call takes two seconds at most, mostly none.
type Mutes interface {
	Muted(ctx context.Context, entity string) bool
}

// A Result is how a notification ended.
type Result struct {
	Taken  []string      // names of the sinks that have taken the event
	Err    error         // why the others have not
	Failed bool          // a sink failed, and did not only put the event off
	Wait   time.Duration // how long none of the others wants a further attempt
}

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
	muted  bool      // its entity is

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
		giveUp: time.Now().Add(redisstore.ClaimLife),
	}
	e.key = keyOf(e.event().ID)
	switch {
	case !n.cfg.Record.begin(e.key, ended):
	case n.cfg.Mutes == nil:
		e.claim()
	default:
		n.looks.put(&job{
			send: func() error {
				e.muted = n.cfg.Mutes.Muted(ctx, entity)
				return nil
			},
			end: func(Result) { e.claim() },
		})
	}
}

// event makes the event each time: those that wait would take much memory.
func (e *notification) event() alert.Event {
	event := EventOf(e.n.cfg.Namespace, e.entity, e.ref, e.missed)
	event.Data.Muted = e.muted
	if e.n.cfg.Labels != nil {
		event.Data.Labels = e.n.cfg.Labels(event.Data.Entity)
	}
	return event
}

// claim sends the event, unless another process notifies of it. Then it asks again each second.
func (e *notification) claim() {
	if e.n.cfg.Shared == nil {
		e.send()
		return
	}
	var done bool
	var failed error
	e.n.claims.put(&job{
		send: func() error {
			e.mine, done, failed = e.n.cfg.Shared.Begin(e.ctx, e.event().ID)
			return nil
		},
		end: func(Result) {
			isElsewhere := !e.mine && failed == nil // or nobody was asked yet
			switch {
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
	if e.ref.Missed == nil {
		event := e.event()
		e.n.cfg.Begun(e.entity, &event)
	}
	e.open = len(sinks)
	if e.open == 0 {
		e.end()
	}
	for i := range sinks {
		s := &sinks[i]
		if slices.Contains(e.missed.TakenBy, s.Name()) {
			e.endSink(s, Result{})
			continue
		}
		s.line.put(&job{
			send: func() error { return s.Alert(e.ctx, e.event()) },
			end: func(r Result) {
				e.n.report(s, e.event(), r)
				e.endSink(s, r)
			},
		})
	}
}

// endSink ends the notification of one sink, and with the last one all of it.
func (e *notification) endSink(s *sink, r Result) {
	e.mu.Lock()
	all := &e.result
	all.Failed = all.Failed || r.Failed
	switch {
	case r.Err == nil:
		all.Taken = append(all.Taken, s.Name())
	case all.Err == nil:
		all.Wait = r.Wait
		all.Err = fmt.Errorf("%s: %w", s.Name(), r.Err)
	default:
		all.Wait = min(all.Wait, r.Wait) // the line of a sink that wants longer puts the event off again
		// On one line: it becomes the description of a dead letter.
		all.Err = fmt.Errorf("%w; %s: %w", all.Err, s.Name(), r.Err)
	}
	e.open--
	isLast := e.open == 0
	e.mu.Unlock()
	if isLast {
		e.end()
	}
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
		end: func(Result) { e.n.cfg.Record.end(e.key, e.result) },
	})
}
