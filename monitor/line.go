// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"math/rand/v2"
	"time"

	"overdue/internal/servicebus/link"

	"golang.org/x/sync/errgroup"
)

// maxLines bounds the sessions of one entity that are received from at once.
const maxLines = 16

// A line is what one receiver can reach: a queue without sessions, or one session of an entity that requires them.
type line struct {
	session *string // nil: there are none
	watches []*watch
}

// lines sorts watches by the lines that their messages stand in.
func (e *entity) lines(watches []*watch) []line {
	if !e.traits.sessions {
		return []line{{watches: watches}}
	}
	var lines []line
	at := map[string]int{}
	for _, wt := range watches {
		id := wt.want.found.SessionID
		i, ok := at[id]
		if !ok {
			i = len(lines)
			at[id] = i
			lines = append(lines, line{session: &id})
		}
		lines[i].watches = append(lines[i].watches, wt)
	}
	return lines
}

// eachLine does the same to several lines, side by side.
func (e *entity) eachLine(ctx context.Context, lines []line, do func(context.Context, line) error) error {
	var g errgroup.Group
	g.SetLimit(maxLines)
	for _, l := range lines {
		g.Go(func() error { return do(ctx, l) })
	}
	return g.Wait()
}

// receiver opens a receiver of l for a short burst. It is nil, and the watches of l say so, where nobody may receive
// now: a consumer has the session, and all in it are in flight; or the entity forwards what it gets, and has no receivers.
//
// While it is open a session is taken from its consumers, which costs none of them more than a try: what the session
// holds goes back uncounted and in order, and its state stays (Azure/amqpnetlite issue 342).
func (e *entity) receiver(ctx context.Context, l line) (*link.Receiver, error) {
	for _, wt := range l.watches {
		wt.shut = false
	}
	r, err := e.w.cfg.Links.BareReceiver(ctx, e.name, l.session)
	switch condition := link.Condition(err); {
	case condition == link.ConditionSessionLocked || condition == link.ConditionNotAllowed && (l.session != nil || e.traits.forwardTo != ""):
		for _, wt := range l.watches {
			wt.shut = true
		}
		return nil, nil
	case condition == link.ConditionNotAllowed:
		// It requires sessions, and nobody has said so. The pass is made again, by session.
		e.w.facts.learn(e.key, func(f *fact) { f.sessions = true })
	}
	return r, err
}

const (
	// A message that could not be expired is in flight, or out of reach. Its expiry is tried again at once when its
	// delivery count shows that it came back, and otherwise after climbMin, doubling up to climbMax: every try may
	// disturb live messages for a moment. Two monitors that scan the same queue are in each other's way: hence chance,
	// by a quarter either way.
	climbMin = time.Second
	climbMax = time.Minute
	// A try that disturbs nobody is made as often as the message is looked at, nearly: whether a consumer gives back
	// a session, or the lock of a deferred message, does not show in any count. Where there are many of them each pass
	// takes its time for all, so they are tried the more rarely: quietShare for each.
	quietClimb = 500 * time.Millisecond
	quietShare = 10 * time.Millisecond
)

// mayClimb reports whether to try to expire the message of wt now.
func (wt *watch) mayClimb(now time.Time) bool {
	if wt.climbed.IsZero() || wt.want.found.DeliveryCount != wt.climbCount {
		return true
	}
	return !now.Before(wt.retryAt)
}

// quiet reports whether a try to expire the message of wt disturbs nobody.
func (wt *watch) quiet() bool { return wt.judgement.deferred || wt.shut }

// triedToClimb notes that a try to expire the message of wt was made, and left it where it is, with as many quiet ones.
func (wt *watch) triedToClimb(now time.Time, quiet int) {
	if wt.unreached {
		wt.unreached = false // it is the next one's turn
		return
	}
	switch {
	case wt.quiet():
		wt.climbDelay = min(max(quietClimb, time.Duration(quiet)*quietShare), climbMax)
	case wt.climbed.IsZero() || wt.want.found.DeliveryCount != wt.climbCount:
		wt.climbDelay = climbMin
	default:
		wt.climbDelay = min(max(wt.climbDelay*2, climbMin), climbMax)
	}
	wt.climbed, wt.climbCount = now, wt.want.found.DeliveryCount
	wt.retryAt = now.Add(wt.climbDelay*3/4 + rand.N(wt.climbDelay/2))
}
