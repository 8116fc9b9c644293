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
	"overdue/monitor/search"

	"golang.org/x/sync/errgroup"
)

// nudgeShows is what a nudge shows about a message that it leaves in place.
type nudgeShows int

const (
	nothing    nudgeShows = iota // no live message came, or numbers do not show the order
	locked                       // the first available message is behind it, so a consumer has locked it
	notReached                   // a live message before it took the credit
)

// nudge makes the broker expire messages whose time to live has passed. It grants one credit, which
// makes a lazy broker clear away expired messages, and takes back the credit if it was not used. It
// releases a live message that arrives, which does not change that message. It does not wait for a
// message.
//
// The documentation does not say whether one receive clears away all expired messages, or only
// those before the first live one. So a check follows every nudge.
//
// The scopes, maxScopes at most, are nudged together: between their receivers and their credit comes
// one peek that confirms their messages.
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
	after, read, err := func() {}, func() {}, error(nil)
	var reading errgroup.Group
	if e.deadLetters() != search.LettersStay {
		after, err = e.confirmPresent(ctx, watches)
		// A consumer that empties the dead-letter queue needs a round trip to settle. A read right after
		// the nudge usually comes first.
		read = func() { reading.Go(func() error { return e.readNewDeadLetters(ctx, watches) }) }
	}
	var sent atomic.Int32
	err = errors.Join(err, eachScope(scopes, func(i int) error {
		switch {
		case receivers[i] == nil:
			return nil
		case err != nil:
			receivers[i].Close(ctx)
			return nil
		}
		first, err := e.w.nudgeOver(ctx, receivers[i], func() {
			if int(sent.Add(1)) == open {
				read()
			}
		})
		for _, wt := range scopes[i].watches {
			switch {
			case err != nil || first == 0 || e.unordered():
				wt.nudged = nothing
			case first > wt.want.Number:
				wt.nudged = locked
			default:
				wt.nudged = notReached
			}
		}
		return err
	}), reading.Wait())
	if err == nil {
		after()
	}
	return err
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
	return e.dead.WithoutKept(func() error { return e.newLetters.Keep(ctx, e.deadLetters(), &e.dead, &e.kept) })
}

// nudgeReach is how long after the decision to nudge a message may become due and be expired by the
// nudge.
const nudgeReach = 50 * time.Millisecond

// confirmPresent peeks at the messages once more, right before the nudge: a message that is gone
// already was settled, and is no evidence. The nudge also expires other messages that become due
// about now and have not been checked yet. confirmPresent records those that are present. The
// caller calls after when the nudge has ended, which keeps those that it can have expired.
func (e *entity) confirmPresent(ctx context.Context, watches []*watch) (after func(), err error) {
	if e.unordered() {
		return func() {}, nil // a peek by number may not find a message
	}
	soon := e.w.clock.now().Add(nudgeReach)
	others := filter(e.watches, func(wt *watch) bool {
		return wt.want.Number != 0 && wt.state != stateMissed && wt.triedAt.IsZero() && !wt.due().After(soon)
	})
	wants := make([]*search.Want, 0, len(watches)+len(others))
	for _, wt := range slices.Concat(watches, others) {
		wants = append(wants, &search.Want{Identity: wt.want.Identity})
	}
	if err := e.work.FindNumbered(ctx, wants, nil); err != nil {
		return nil, err
	}
	for i, wt := range watches {
		wt.mayExpireNow = wt.mayExpireNow && wants[i].Found != nil
	}
	return func() {
		now, known := e.w.notAfter()
		for i, wt := range others {
			if m := wants[len(watches)+i].Found; m != nil && known && e.nudgeExpires(wt, m, now) {
				wt.atNudge = m
			}
		}
	}, nil
}

// nudgeExpires reports whether a nudge that ended before now can have expired m, the message of wt.
// A deadline before the end of its time to live does not count, and a deferred message stays.
func (e *entity) nudgeExpires(wt *watch, m *link.Message, now time.Time) bool {
	expiry, mortal := judge.NativeExpiry(&wt.ref, m, e.settings.Settings)
	return mortal && expiry.Before(now) && m.State != link.Deferred
}
