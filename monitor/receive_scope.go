// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"math/rand/v2"
	"slices"
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
		id := wt.ref.SessionID
		if m := wt.want.Found; m != nil {
			id = m.SessionID
		}
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
		if wt.attempt.left == refused {
			wt.attempt.left = nothing
		}
	}
	r, err := e.openReceiver(ctx, l.session)
	switch condition := link.Condition(err); {
	case condition == link.ConditionSessionLocked || condition == link.ConditionNotAllowed && (l.session != nil || e.settings.forwardTo != ""):
		for _, wt := range l.watches {
			wt.attempt.left, wt.evidence.mayExpireNow = refused, false
		}
		return nil, nil
	case condition == link.ConditionNotAllowed:
		// The entity requires sessions, which was unknown. The check is repeated by session.
		e.w.states.update(e.key, func(f *entityState) { f.sessions = true })
	}
	return r, err
}

// opened is a receiver, or why it could not be opened.
type opened struct {
	*link.Receiver
	err error
}

// openAhead opens a receiver while the messages of watches are searched for, if some were found
// before and have expired since, unless somebody has received them. The caller calls end after the
// check.
func (e *entity) openAhead(ctx context.Context, watches []*watch) (end func()) {
	now := e.w.clock.Now().Add(-e.w.clock.Grain())
	if !e.nudgeReachesAll() || !slices.ContainsFunc(watches, func(wt *watch) bool {
		return wt.want.Found != nil && wt.want.Number != 0 && !wt.attempt.made() && e.judge(wt, now).Native
	}) {
		return func() {}
	}
	ahead := make(chan opened, 1)
	e.opened = ahead
	go func() {
		r, err := e.w.cfg.Links.BareReceiver(ctx, e.name, nil)
		ahead <- opened{r, err}
	}()
	return func() {
		if e.opened == nil {
			return
		}
		e.opened = nil
		if o := <-ahead; o.err == nil {
			o.Close(ctx)
		}
	}
}

// openReceiver opens a receiver, or returns that which is open.
func (e *entity) openReceiver(ctx context.Context, session *string) (*link.Receiver, error) {
	if e.opened == nil || session != nil {
		return e.w.cfg.Links.BareReceiver(ctx, e.name, session)
	}
	o := <-e.opened
	e.opened = nil
	return o.Receiver, o.err
}

const (
	// A message that could not be expired is in flight, or out of reach. The next attempt follows
	// at once when its delivery count shows that it came back, otherwise after expiryRetryMin,
	// doubling up to expiryRetryMax: each attempt may affect live messages for an instant. Two
	// monitors that scan the same queue obstruct each other, hence a random quarter either way.
	expiryRetryMin = time.Second
	expiryRetryMax = time.Minute
	// An attempt that affects no other message is made nearly as often as the message is checked:
	// no delivery count shows that a consumer released a session, or the lock of a deferred
	// message. A check takes longer for many of them, so these are tried less often: harmlessShare
	// for each.
	harmlessRetry = 500 * time.Millisecond
	harmlessShare = 10 * time.Millisecond
)

// attempt is the last attempt to expire a message.
type attempt struct {
	left          obstacle // why it left the message in place, as far as it shows
	deliveryCount uint32   // of the message at that time
	delay         time.Duration
	next          time.Time // by our clock: the next attempt; zero: there was none yet
}

// made reports whether there was an attempt.
func (a *attempt) made() bool { return !a.next.IsZero() }

// obstacle is why an attempt left a message in place.
type obstacle int

const (
	nothing    obstacle = iota // nothing shows it: no live message came, or numbers do not show the order
	locked                     // the first available message is behind it, so a consumer has locked it
	notReached                 // a live message before it took the credit
	refused                    // nobody could receive it
	cutOff                     // the scan made progress and ended before it
	spared                     // it has expired, and the entity drops expired messages: see drops.go
)

// mayTryExpiry reports whether to try to expire the message of wt now.
func (wt *watch) mayTryExpiry(now time.Time) bool {
	return wt.isFree() || !now.Before(wt.attempt.next)
}

// isFree reports whether no consumer holds the message of wt, as far as its delivery count shows. A
// message that an attempt to expire it left in place is locked. It is free again when its count has
// risen: the lock has lapsed, or was abandoned. A settlement does not raise it
// (learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement).
func (wt *watch) isFree() bool {
	return !wt.attempt.made() || wt.want.Found.DeliveryCount != wt.attempt.deliveryCount
}

// harmless reports whether an attempt to expire the message of wt affects no other message.
func (wt *watch) harmless() bool { return wt.judgement.Deferred || wt.attempt.left == refused }

// triedExpiry records an attempt that left the message of wt in place, together with so many
// harmless ones.
func (wt *watch) triedExpiry(now time.Time, quiet int) {
	a := &wt.attempt
	if a.left == cutOff {
		a.left = nothing // it is the turn of the next one
		return
	}
	switch {
	case wt.harmless():
		a.delay = min(max(harmlessRetry, time.Duration(quiet)*harmlessShare), expiryRetryMax)
	case wt.isFree():
		a.delay = expiryRetryMin
	default:
		a.delay = min(max(a.delay*2, expiryRetryMin), expiryRetryMax)
	}
	a.deliveryCount = wt.want.Found.DeliveryCount
	a.next = now.Add(a.delay*3/4 + rand.N(a.delay/2))
}
