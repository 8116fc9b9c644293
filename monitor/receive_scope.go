// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"math/rand/v2"
	"time"

	"overdue/internal/servicebus/link"

	"golang.org/x/sync/errgroup"
)

// maxScopes bounds the sessions of one entity that are received from at once.
const maxScopes = 16

// A receiveScope is the reach of one receiver: a queue without sessions, or one session.
type receiveScope struct {
	session *string // nil: no sessions
	watches []*watch
}

// scopes groups watches by receiver.
func (e *entity) scopes(watches []*watch) []receiveScope {
	if !e.settings.sessions {
		return []receiveScope{{watches: watches}}
	}
	var lines []receiveScope
	at := map[string]int{}
	for _, wt := range watches {
		id := wt.want.Found.SessionID
		i, ok := at[id]
		if !ok {
			i = len(lines)
			at[id] = i
			lines = append(lines, receiveScope{session: &id})
		}
		lines[i].watches = append(lines[i].watches, wt)
	}
	return lines
}

// eachScope calls do with the index of each scope, in parallel.
func eachScope(scopes []receiveScope, do func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(maxScopes)
	for i := range scopes {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}

// receiver opens a receiver for a short burst. It returns nil, and marks the watches as refused, if
// no receiver can be opened now: a consumer has the session, or the entity forwards its messages.
//
// An open receiver takes a session from its consumers for that time, which costs them one
// attempt: messages go back uncounted and in order, and the state of the session stays
// (Azure/amqpnetlite issue 342).
func (e *entity) receiver(ctx context.Context, l receiveScope) (*link.Receiver, error) {
	for _, wt := range l.watches {
		wt.refused = false
	}
	r, err := e.w.cfg.Links.BareReceiver(ctx, e.name, l.session)
	switch condition := link.Condition(err); {
	case condition == link.ConditionSessionLocked || condition == link.ConditionNotAllowed && (l.session != nil || e.settings.forwardTo != ""):
		for _, wt := range l.watches {
			wt.refused, wt.mayExpireNow = true, false
		}
		return nil, nil
	case condition == link.ConditionNotAllowed:
		// The entity requires sessions, which was unknown. The check is repeated by session.
		e.w.states.update(e.key, func(f *entityState) { f.sessions = true })
	}
	return r, err
}

const (
	// A message that could not be expired is in flight, or out of reach. The next attempt follows at
	// once when its delivery count shows that it came back, otherwise after expiryRetryMin, doubling
	// up to expiryRetryMax: each attempt may affect live messages for an instant. Two monitors that
	// scan the same queue obstruct each other, hence a random quarter either way.
	expiryRetryMin = time.Second
	expiryRetryMax = time.Minute
	// An attempt that affects no other message is made nearly as often as the message is checked: no
	// delivery count shows that a consumer released a session, or the lock of a deferred message. A
	// check takes longer for many of them, so these are tried less often: harmlessShare for each.
	harmlessRetry = 500 * time.Millisecond
	harmlessShare = 10 * time.Millisecond
)

// mayTryExpiry reports whether to try to expire the message of wt now.
func (wt *watch) mayTryExpiry(now time.Time) bool {
	return wt.isFree() || !now.Before(wt.retryAt)
}

// isFree reports whether no consumer holds the message of wt, as far as its delivery count shows. A
// message that an attempt to expire it left in place is locked. It is free again when its count has
// risen: the lock has lapsed, or was abandoned. A settlement does not raise it
// (learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement).
func (wt *watch) isFree() bool {
	return wt.triedAt.IsZero() || wt.want.Found.DeliveryCount != wt.triedDeliveryCount
}

// harmless reports whether an attempt to expire the message of wt affects no other message.
func (wt *watch) harmless() bool { return wt.judgement.Deferred || wt.refused }

// triedExpiry records an attempt that left the message of wt in place, together with so many
// harmless ones.
func (wt *watch) triedExpiry(now time.Time, quiet int) {
	if wt.unreached {
		wt.unreached = false // it is the turn of the next one
		return
	}
	switch {
	case wt.harmless():
		wt.retryDelay = min(max(harmlessRetry, time.Duration(quiet)*harmlessShare), expiryRetryMax)
	case wt.isFree():
		wt.retryDelay = expiryRetryMin
	default:
		wt.retryDelay = min(max(wt.retryDelay*2, expiryRetryMin), expiryRetryMax)
	}
	wt.triedAt, wt.triedDeliveryCount = now, wt.want.Found.DeliveryCount
	wt.retryAt = now.Add(wt.retryDelay*3/4 + rand.N(wt.retryDelay/2))
}
