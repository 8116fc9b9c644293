// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"
)

// Where dead letters are known to stay, the letter decides. Then no peek comes before the nudge:
// nudges follow the deadlines in a goroutine of their own, and one read of letters by number serves
// all messages whose nudge was made. What has no letter is looked for.

const (
	// After a read of letters, none are read for restPerPage times its pages, but restMax at most.
	// So few messages are notified of soon, and many share pages.
	restPerPage = 10 * time.Millisecond
	restMax     = 4 * time.Second
)

// isFast reports whether nudges come first on e.
func (e *entity) isFast() bool {
	return e.settings.nudgeReachesAll() && !e.work.Unordered && e.letters.stay()
}

// nudgeFor requests the nudges for the messages of a rule, all of which are due soon.
func (e *entity) nudgeFor(ctx context.Context, rl *rule) {
	grain := e.w.clock.Grain()
	switch {
	case rl.slot != nil:
		e.nudger.Want(ctx, rl.slot.SlotStart(), rl.slot.SlotEnd.Add(grain))
	case e.isNear(rl.ref.Deadline) && rl.ref.Missed == nil:
		due := rl.ref.Deadline.Add(grain)
		e.nudger.Want(ctx, due, due)
	}
}

// isNudged reports whether the broker expires the message of wt at its deadline, at the first
// nudge.
func (e *entity) isNudged(wt *watch) bool {
	if wt.state != stateWaiting || wt.attempt.isMade() {
		return false
	}
	return wt.isNative(e.settings.Settings)
}

// awaitNudges has watches that are due wait for their nudge, as far as nudges come first. It
// returns the others.
func (e *entity) awaitNudges(ctx context.Context, due []*watch) (rest []*watch) {
	if !e.isFast() {
		return due
	}
	for _, wt := range due {
		if !e.isNudged(wt) || e.w.clock.Now().Before(wt.due) {
			rest = append(rest, wt)
			continue
		}
		due := wt.due.Add(e.w.clock.Grain())
		e.nudger.Want(ctx, due, due)
		e.ripe = append(e.ripe, wt)
	}
	return rest
}

// takeRipe returns the watches whose nudge was made, once the rest is over. It does not wait longer
// than nearDeadline for a nudge that cannot be made.
func (e *entity) takeRipe(now time.Time) (ripe []*watch) {
	if len(e.ripe) == 0 || now.Before(e.rest) {
		return nil
	}
	grain, waiting := e.w.clock.Grain(), e.ripe[:0]
	for _, wt := range e.ripe {
		if _, made := e.nudger.MadeFor(wt.due.Add(grain)); !made && now.Sub(wt.next) < nearDeadline {
			waiting = append(waiting, wt)
		} else {
			ripe = append(ripe, wt)
		}
	}
	clear(e.ripe[len(waiting):])
	e.ripe = waiting
	return ripe
}

// readLetters reads the dead letters of messages whose nudge was made, and looks for those that
// have none.
func (e *entity) readLetters(ctx context.Context, ripe []*watch) error {
	pages := e.letters.view.Peeks
	err := e.findLetters(ctx, ripe)
	pages = e.letters.view.Peeks - pages
	e.rest = time.Now().Add(min(time.Duration(pages)*restPerPage, restMax))
	if err != nil {
		return err
	}
	left := undecided(ripe)
	r := &round{entity: e, watches: left}
	if err := r.peekAt(ctx, left); err != nil {
		return err
	}
	r.judgeSeen(left)
	return nil
}
