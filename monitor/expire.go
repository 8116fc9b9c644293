// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"math/rand/v2"
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
func scopesOf(watches []*watch, sessions bool, brokerNow time.Time) (scopes []*scope, rest []*watch) {
	bySession, now := map[string]*scope{}, time.Now()
	for _, wt := range watches {
		if brokerNow.Before(wt.due) || wt.state == stateUnexplained || now.Before(wt.attempt.next) {
			rest = append(rest, wt)
			continue
		}
		id := ""
		if sessions {
			id = wt.reference().SessionID
		}
		s := bySession[id]
		if s == nil {
			s = &scope{}
			if sessions {
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
	var g errgroup.Group
	for _, s := range scopes {
		g.Go(func() error { return do(s) })
	}
	return g.Wait()
}

// openScopes opens the receivers. One of a queue stays open for the next round.
//
// An open receiver takes a session from its consumers for that time, which costs them one attempt.
// Messages go back uncounted and in order, and the state of the session stays (Azure/amqpnetlite
// issue 342).
func (r *round) openScopes(ctx context.Context) error {
	return eachScope(r.scopes, func(s *scope) (err error) {
		if s.session == nil && r.receiver != nil {
			s.receiver = r.receiver
			return nil
		}
		s.receiver, err = r.w.cfg.Links.BareReceiver(ctx, r.name, s.session)
		switch condition := link.Condition(err); {
		case err == nil && s.session == nil:
			r.receiver = s.receiver
		case condition == link.ConditionSessionLocked || condition == link.ConditionNotAllowed && (s.session != nil || r.settings.forwardTo != ""):
			return nil
		case condition == link.ConditionNotAllowed:
			r.inbox.sessions.Store(true) // which was unknown: the round is repeated by session
		}
		if err != nil {
			return fmt.Errorf("monitor: receive from %s: %w", r.name, err)
		}
		return nil
	})
}

// closeScopes closes the receivers of sessions.
func (r *round) closeScopes(ctx context.Context) {
	for _, s := range r.scopes {
		if s.session != nil && s.receiver != nil {
			s.receiver.Close(ctx)
		}
	}
	if r.receiver != nil && r.receiver.IsStalled() {
		r.closeReceiver(ctx)
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
func (r *round) expirable(s *scope) []*watch {
	if s.receiver == nil {
		return nil
	}
	return filter(s.watches, func(wt *watch) bool {
		return wt.isOverdue() && !wt.judgement.Deferred && !r.isSpared(wt)
	})
}

// nudge makes the broker expire the messages whose time to live has passed. It returns the
// watches over them.
//
// The documentation does not say whether one receive clears away all expired messages, or only
// those before the first live one. So a peek follows every nudge.
func (r *round) nudge(ctx context.Context) (nudged []*watch, err error) {
	var open []*scope
	for _, s := range r.scopes {
		native := filter(r.expirable(s), func(wt *watch) bool {
			return wt.judgement.Native && (r.settings.Strategy != strategyScan || wt.judgement.Assumed)
		})
		if len(native) > 0 {
			open = append(open, s)
			nudged = append(nudged, native...)
		}
	}
	err = eachScope(open, func(s *scope) error {
		live, err := nudge.Over(ctx, s.receiver, r.w.metrics.Operations)
		if err != nil {
			return fmt.Errorf("monitor: nudge %s: %w", r.name, err)
		}
		if live != nil {
			s.blocked = live.SequenceNumber
		}
		return nil
	})
	return nudged, err
}

// attempt is the last attempt to expire a message.
type attempt struct {
	deliveryCount uint32    // of the message at that time
	next          time.Time // by our clock: the next attempt; zero: there was none yet
	cut           bool      // the scan ended before it: it is the turn of the next one
}

// isMade reports whether there was an attempt.
func (a *attempt) isMade() bool { return !a.next.IsZero() }

// isFree reports whether no consumer holds m, as far as its delivery count shows. A message that an
// attempt to expire it left in place is locked. It is free again when its count has risen: the lock
// has lapsed, or was abandoned. A settlement does not raise it
// (learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement).
func (a *attempt) isFree(m *link.Message) bool {
	return !a.isMade() || m.DeliveryCount != a.deliveryCount
}

// noteAttempts records the attempts that left messages in place. Such a message is tried again at
// once when its delivery count shows that it came back. Otherwise an attempt waits: it may affect
// live messages for an instant. Two monitors that scan the same queue obstruct each other, hence a
// random quarter either way. An attempt that affects no other message follows soon: no delivery
// count shows that a consumer released a session, or the lock of a deferred message.
func (s *scope) noteAttempts(now time.Time) {
	for _, wt := range s.watches {
		if wt.state != stateInFlight || !wt.there {
			continue
		}
		a := &wt.attempt
		if a.cut {
			a.cut = false
			continue
		}
		delay := checkMax
		if !wt.judgement.Deferred && s.receiver != nil {
			delay = max(delay, growing(now.Sub(wt.due), waitMax))
		}
		a.deliveryCount = wt.seen.DeliveryCount
		a.next = time.Now().Add(delay*3/4 + rand.N(delay/2))
	}
}
