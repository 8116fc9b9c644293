// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
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
func (e *entity) nudge(ctx context.Context, l receiveScope) error {
	r, err := e.receiver(ctx, l)
	if err != nil {
		return fmt.Errorf("monitor: nudge %s: %w", e.name, err)
	}
	if r == nil {
		return nil
	}
	var reading errgroup.Group
	read, after := func() {}, func() {}
	if l.session == nil && e.deadLetters() != search.LettersStay {
		if after, err = e.confirmPresent(ctx, l.watches); err != nil {
			r.Close(ctx)
			return err
		}
		// A consumer that empties the dead-letter queue needs a round trip to settle. A read right after
		// the nudge usually comes first.
		read = func() { reading.Go(func() error { return e.readNewDeadLetters(ctx, l.watches) }) }
	}
	first, err := e.w.nudgeOver(ctx, r, read)
	if err = errors.Join(err, reading.Wait()); err != nil {
		return fmt.Errorf("monitor: nudge %s: %w", e.name, err)
	}
	after()
	for _, wt := range l.watches {
		// The first available message is behind it, so a consumer has locked it.
		wt.locked = first > wt.want.Number && !e.settings.partitioned && !e.work.Cursor
	}
	return nil
}

// readNewDeadLetters finds the dead letters that a nudge has just made, and keeps those of other
// messages.
func (e *entity) readNewDeadLetters(ctx context.Context, watches []*watch) error {
	if e.deadLetters() == search.LettersTaken && !e.settings.partitioned && e.settings.forwardDead == "" {
		if err := e.dead.WithoutKept(func() (err error) {
			_, err = keepPages(ctx, &e.dead, &e.kept, search.Identity{})
			return err
		}); err != nil {
			return err
		}
	}
	return e.readDeadLetters(ctx, watches)
}

// nudgeReach is how long after the decision to nudge a message may become due and be expired by the
// nudge.
const nudgeReach = 50 * time.Millisecond

// confirmPresent peeks at the messages once more, right before the nudge: a message that is gone
// already was settled, and is no evidence. The nudge also expires other messages that become due
// about now and have not been checked yet. confirmPresent records those that are present. The
// caller calls after when the nudge has ended, which keeps those that it can have expired.
func (e *entity) confirmPresent(ctx context.Context, watches []*watch) (after func(), err error) {
	if e.work.Cursor || e.settings.partitioned {
		return func() {}, nil // a peek by number may not find a message
	}
	soon := e.w.clock.now().Add(nudgeReach)
	others := filter(e.watches, func(wt *watch) bool {
		return wt.want.Number != 0 && wt.missed == nil && wt.triedAt.IsZero() && !wt.due().After(soon)
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
	expiry, mortal := nativeExpiry(&wt.ref, m, e.settings.Settings)
	return mortal && expiry.Before(now) && m.State != link.Deferred
}
