// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/nudge"

	"golang.org/x/sync/errgroup"
)

// Strategies, as in the configuration and events. Any other value means auto: native, then scan.
// With any strategy, messages in a session are expired in their session, and deferred ones by
// number.
const (
	strategyNative   = "native"
	strategyScan     = "scan"
	strategySession  = "session"
	strategyDeferred = "deferred"
)

// maxScopes bounds the sessions of one entity that are received from at once.
const maxScopes = 16

// A scope is the reach of one receiver: a queue without sessions, or one session. One nudge or scan
// is for all its messages.
type scope struct {
	session  *string        // nil: no sessions
	receiver *link.Receiver // nil: a consumer has the session, or the entity forwards
	watches  []*watch
	blocked  int64           // the number of a live message that took the credit; 0: none
	others   []*link.Message // dead letters that a scan has made of other messages
}

// scopesOf groups the watches for which an attempt is due by what reaches them. The rest are only
// looked at.
func (e *entity) scopesOf(watches []*watch) (scopes []*scope, rest []*watch) {
	bySession := map[string]*scope{}
	now, brokerNow := time.Now(), e.w.clock.Now()
	for _, wt := range watches {
		if brokerNow.Before(wt.due) || wt.state == stateUnexplained || now.Before(wt.attempt.next) {
			rest = append(rest, wt)
			continue
		}
		id := ""
		if e.settings.sessions {
			id = wt.reference().SessionID
		}
		s := bySession[id]
		if s == nil {
			s = &scope{}
			if e.settings.sessions {
				s.session = &id
			}
			bySession[id] = s
			scopes = append(scopes, s)
		}
		s.watches = append(s.watches, wt)
	}
	return scopes, rest
}

// eachScope calls do with the scopes, in parallel.
func eachScope(scopes []*scope, do func(*scope) error) error {
	if len(scopes) == 1 {
		return do(scopes[0])
	}
	var g errgroup.Group
	for _, s := range scopes {
		g.Go(func() error { return do(s) })
	}
	return g.Wait()
}

// openScopes opens the receivers. One of a queue stays open for the next round.
//
// An open receiver takes a session from its consumers for that time, which costs them one attempt:
// messages go back uncounted and in order, and the state of the session stays (Azure/amqpnetlite
// issue 342).
func (e *entity) openScopes(ctx context.Context, scopes []*scope) error {
	return eachScope(scopes, func(s *scope) (err error) {
		if s.session == nil && e.receiver != nil {
			s.receiver = e.receiver
			return nil
		}
		s.receiver, err = e.w.cfg.Links.BareReceiver(ctx, e.name, s.session)
		switch condition := link.Condition(err); {
		case err == nil && s.session == nil:
			e.receiver = s.receiver
		case condition == link.ConditionSessionLocked || condition == link.ConditionNotAllowed && (s.session != nil || e.settings.forwardTo != ""):
			return nil
		case condition == link.ConditionNotAllowed:
			e.inbox.sessions.Store(true) // which was unknown: the round is repeated by session
		}
		if err != nil {
			return fmt.Errorf("monitor: receive from %s: %w", e.name, err)
		}
		return nil
	})
}

// closeScopes closes the receivers of sessions.
func (e *entity) closeScopes(ctx context.Context, scopes []*scope) {
	for _, s := range scopes {
		if s.session != nil && s.receiver != nil {
			s.receiver.Close(ctx)
		}
	}
	if e.receiver != nil && e.receiver.IsStalled() {
		e.closeReceiver(ctx)
	}
}

// closeReceiver closes the receiver of the last round.
func (e *entity) closeReceiver(ctx context.Context) {
	if e.receiver != nil {
		e.receiver.Close(ctx)
		e.receiver = nil
	}
}

// expirable returns the watches of s that are overdue and may be taken off the queue.
func (e *entity) expirable(s *scope) []*watch {
	if s.receiver == nil {
		return nil
	}
	return filter(s.watches, func(wt *watch) bool {
		return wt.isOverdue() && !wt.judgement.Deferred && !e.isSpared(wt)
	})
}

// nudgeScopes makes the broker expire the messages whose time to live has passed. It returns the
// watches over them.
//
// The documentation does not say whether one receive clears away all expired messages, or only
// those before the first live one. So a peek follows every nudge.
func (e *entity) nudgeScopes(ctx context.Context, scopes []*scope) (nudged []*watch, err error) {
	var open []*scope
	for _, s := range scopes {
		native := filter(e.expirable(s), func(wt *watch) bool {
			return wt.judgement.Native && (e.settings.Strategy != strategyScan || wt.judgement.Assumed)
		})
		if len(native) > 0 {
			open = append(open, s)
			nudged = append(nudged, native...)
		}
	}
	err = eachScope(open, func(s *scope) error {
		live, _, err := nudge.Over(ctx, s.receiver, e.w.metrics.Operations)
		if err != nil {
			return fmt.Errorf("monitor: nudge %s: %w", e.name, err)
		}
		if live != nil {
			s.blocked = live.SequenceNumber
		}
		return nil
	})
	return nudged, err
}
