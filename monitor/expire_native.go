// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/nudge"
	"overdue/monitor/search"

	"golang.org/x/sync/errgroup"
)

// nudge makes the broker expire messages whose time to live has passed. It grants one credit, which
// makes a lazy broker clear away expired messages, and takes back the credit if it was not used. It
// releases a live message that arrives, which does not change that message. It does not wait for a
// message.
//
// The documentation does not say whether one receive clears away all expired messages, or only
// those before the first live one. So a check follows every nudge.
//
// The scopes, maxScopes at most, are nudged together: between their receivers and their credit
// comes one peek that confirms their messages.
func (e *entity) nudge(ctx context.Context, scopes []receiveScope) error {
	receivers := make([]*link.Receiver, len(scopes))
	if err := errors.Join(eachScope(scopes, func(i int) (err error) {
		receivers[i], err = e.receiver(ctx, scopes[i])
		return err
	}), e.nudgeOver(ctx, scopes, receivers)); err != nil {
		return fmt.Errorf("monitor: nudge %s: %w", e.name, err)
	}
	return nil
}

// nudgeOver nudges over receivers and closes them.
func (e *entity) nudgeOver(ctx context.Context, scopes []receiveScope, receivers []*link.Receiver) error {
	var watches []*watch
	open := 0
	for i, r := range receivers {
		if r != nil {
			open++
			watches = append(watches, scopes[i].watches...)
		}
	}
	if open == 0 {
		return nil
	}
	after, read, confirm, err := func() error { return nil }, func() {}, func() error { return nil }, error(nil)
	var reading errgroup.Group
	if e.deadLetters() != search.LettersStay {
		confirm = func() (err error) {
			if len(present(watches)) > 0 {
				after, err = e.confirmPresent(ctx, watches)
			}
			return err
		}
		// A consumer that empties the dead-letter queue needs a round trip to settle. A read right
		// after the nudge usually comes first.
		read = func() { reading.Go(func() error { return e.readNewDeadLetters(ctx, watches) }) }
	}
	var sent atomic.Int32
	over := func(i int) (got *link.Message, err error) {
		if receivers[i] == nil {
			return nil, nil
		}
		defer receivers[i].Close(ctx)
		got, err = nudge.Over(ctx, receivers[i], e.w.metrics.Operations, func() {
			if int(sent.Add(1)) == open {
				read()
			}
		})
		for _, wt := range scopes[i].watches {
			wt.attempt.left = nothing
			if err == nil && got != nil {
				wt.attempt.left = e.nudgeShows(search.IdentityOf(got), wt)
			}
		}
		return got, err
	}
	all := func() (got *link.Message, err error) {
		if err := confirm(); err != nil {
			for _, r := range receivers {
				if r != nil {
					r.Close(ctx)
				}
			}
			return nil, err
		}
		if len(scopes) == 1 {
			return over(0)
		}
		return nil, eachScope(scopes, func(i int) error {
			_, err := over(i)
			return err
		})
	}
	if scopes[0].session == nil {
		err = e.nudger.InTurn(ctx, &e.work, func() error { return nil }, all)
	} else {
		_, err = all()
	}
	if err = errors.Join(err, reading.Wait()); err != nil {
		return err
	}
	return after()
}

// nudgeShows returns what a nudge to which first came shows of the message of wt. The numbers of
// different partitions do not show their order. The stamps do, and not whether the broker offers
// the older message first.
func (e *entity) nudgeShows(first search.Identity, wt *watch) obstacle {
	switch {
	case e.unordered() && first.Enqueued > wt.want.Enqueued:
		return nothing
	case !e.unordered() && first.Number > wt.want.Number:
		return locked
	}
	return notReached
}

// readNewDeadLetters finds the dead letters that a nudge has just made, and keeps those of other
// messages.
func (e *entity) readNewDeadLetters(ctx context.Context, watches []*watch) error {
	if err := e.keepNewDeadLetters(ctx); err != nil {
		return err
	}
	return e.readDeadLetters(ctx, watches)
}

// keepNewDeadLetters keeps the dead letters that a receive of this worker has just made.
func (e *entity) keepNewDeadLetters(ctx context.Context) error {
	if e.settings.forwardDead != "" {
		return nil
	}
	return e.dead.WithoutKept(func() error { return e.newLetters.Read(ctx, e.deadLetters(), false, &e.dead, e.kept.Add) })
}

// justNow is how long a peek shows what is on the queue: one that takes a round trip shows no more.
const justNow = 2 * time.Millisecond

// confirmPresent peeks at the messages once more, right before the nudge: a message that is gone
// already was settled, and is no evidence. The nudge also expires other messages that become due
// about now and have not been checked yet. The caller calls after when the nudge has ended: it
// keeps those that were there before and are gone. One that is still there is held.
func (e *entity) confirmPresent(ctx context.Context, watches []*watch) (after func() error, err error) {
	if e.unordered() {
		return func() error { return nil }, nil // a peek by number may not find a message
	}
	soon := e.w.clock.Now().Add(nudge.Reach)
	others := filter(e.watches, func(wt *watch) bool {
		return wt.want.Number != 0 && wt.state != stateMissed && !wt.attempt.made() && !wt.due().After(soon)
	})
	if time.Since(e.peekedAt) < justNow {
		watches = nil // the check has just done so
	}
	wants, err := e.findPresent(ctx, slices.Concat(watches, others), time.Now())
	if err != nil {
		return nil, err
	}
	for i, wt := range watches {
		wt.evidence.mayExpireNow = wt.evidence.mayExpireNow && wants[i].Found != nil
	}
	return func() error { return e.keepExpired(ctx, others, wants[len(watches):]) }, nil
}

// keepExpired keeps as evidence the messages of watches that a nudge has expired: they were found
// right before it, and are gone right after it.
func (e *entity) keepExpired(ctx context.Context, watches []*watch, before []*search.Want) error {
	now, known := e.w.clock.NotAfter()
	var expired []*watch
	var found []*link.Message
	var again []*search.Want
	for i, wt := range watches {
		if m := before[i].Found; m != nil && known && e.nudgeExpires(wt, m, now) {
			expired, found, again = append(expired, wt), append(found, m), append(again, &search.Want{Identity: before[i].Identity})
		}
	}
	if err := e.work.FindNumbered(ctx, again, nil); err != nil {
		return err
	}
	for i, wt := range expired {
		if again[i].Found == nil {
			wt.evidence.atNudge = found[i]
		}
	}
	return nil
}

// findPresent notes which of the messages, whose numbers are known, are on the work queue. began is
// our clock.
func (e *entity) findPresent(ctx context.Context, watches []*watch, began time.Time) ([]*search.Want, error) {
	wants := byIdentity(watches)
	if err := e.work.FindNumbered(ctx, wants, nil); err != nil {
		return nil, err
	}
	if !e.needsProof() {
		return wants, nil // dead letters are the evidence
	}
	for i, wt := range watches {
		if m := wants[i].Found; m != nil {
			wt.evidence.present, wt.evidence.presentAt = m, began
		}
	}
	return wants, nil
}

// nudgeExpires reports whether a nudge that ended before now can have expired m, the message of wt.
// A deadline before the end of its time to live does not count, and a deferred message stays.
func (e *entity) nudgeExpires(wt *watch, m *link.Message, now time.Time) bool {
	expiry, mortal := judge.NativeExpiry(&wt.ref, m, e.settings.Settings)
	return mortal && expiry.Before(now) && m.State != link.Deferred
}
