// SPDX-License-Identifier: Apache-2.0

// Package notify hands each event to each sink once, however slow the sinks are, and due digests to
// their groups.
package notify

import (
	"slices"
	"sync/atomic"
	"time"

	"overdue/alert"
	"overdue/internal/pace"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// Config configures a Notifier.
type Config struct {
	Namespace string                                // host or host:port, for the source of events
	Labels    func(entity string) map[string]string // what the operator states of a queue or topic; nil: nothing
	Record    *Record                               // gets the events
	Shared    Shared                                // nil: this process is the only one
	Mutes     Mutes                                 // nil: nothing is muted
	Scheduler *scheduler.Scheduler
	Now       func() time.Time // the clock of the broker, never ahead
	Yield     func()           // leaves digests to other monitors
	Begun     func(entity string, e *alert.Event)
	Delivered func(sink string, err error) // counts a delivery, or a notification of a group; pace.IsRetryAfter: put off
	Log       *zap.Logger
}

// A Notifier hands events to the sinks.
type Notifier struct {
	cfg    Config
	log    *zap.Logger
	sinks  atomic.Pointer[[]sink] // of one configuration; a new one replaces them
	looks  line                   // of events that may be muted
	claims line                   // of events that are shared with other monitors
}

// A sink has a line of its own, so that it delays no other.
type sink struct {
	alert.Alerter
	line   *line
	groups *alert.Groups // nil: it takes single events
}

// New makes a Notifier without sinks.
func New(cfg Config) *Notifier {
	n := &Notifier{
		cfg:    cfg,
		log:    cfg.Log,
		looks:  line{limit: 1}, // the first one is for all that wait
		claims: line{limit: maxAttempts},
	}
	n.sinks.Store(&[]sink{})
	return n
}

// SetSinks replaces the sinks. Notifications that have started continue with the old ones.
// Groups that are not in all are closed: SetSinks returns when they are, after a few seconds
// at most. It MUST NOT be called concurrently.
func (n *Notifier) SetSinks(all []alert.Alerter) {
	var next []sink
	before := *n.sinks.Load()
	for _, a := range all {
		s := sink{
			Alerter: a,
			line:    &line{limit: maxAttempts},
		}
		s.groups, _ = alert.Find[*alert.Groups](a)
		// A sink that waits for no network gets slower with each job that competes for the processors.
		if _, isLocal := alert.Find[interface{ Local() }](a); isLocal {
			s.line.limit = 1
		}
		if s.groups != nil && !has(before, s.groups) { // a group that stays may be sending
			s.groups.OnNotify(func(err error) { n.cfg.Delivered(s.Name(), err) })
		}
		next = append(next, s)
	}
	n.sinks.Store(&next)
	closeGroups(before, next)
}

// Close closes the groups.
func (n *Notifier) Close() { closeGroups(*n.sinks.Load(), nil) }

// closeGroups closes the groups of sinks that are not in others.
func closeGroups(sinks, others []sink) {
	for _, s := range sinks {
		if s.groups != nil && !has(others, s.groups) {
			s.groups.Close()
		}
	}
}

func has(sinks []sink, g *alert.Groups) bool {
	return slices.ContainsFunc(sinks, func(s sink) bool { return s.groups == g })
}

// report counts a delivery to a sink, and shows operators that it has not taken an event so far. A
// group counts its own notifications.
func (n *Notifier) report(s *sink, e alert.Event, r Result) {
	isAnswered := r.Err == nil || r.Failed && r.Wait == 0 || pace.IsRetryAfter(r.Err)
	if isAnswered && s.groups == nil && alert.Delivers(s.Alerter, &e) {
		n.cfg.Delivered(s.Name(), r.Err)
	}
	if r.Err == nil {
		return
	}
	if h, ok := alert.Find[interface{ Untaken(alert.Event, error) }](s.Alerter); ok {
		cause := r.Err
		if !r.Failed {
			cause = nil // it only waits
		}
		h.Untaken(e, cause)
	}
}
