// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/monitor/judge"
	"overdue/monitor/nudge"
)

// Where dead letters are known to stay, the letter decides. Then no peek comes before the nudge.
// Nudges follow the deadlines in a goroutine of their own, and one read of letters by number serves
// all messages whose nudge was made. The queue is searched for messages without a letter.

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

// nudges are those of an entity in fast mode, and the watches that wait for theirs.
type nudges struct {
	*nudge.Nudger
	ripe []*watch
	rest time.Time // by our clock: the letters of ripe ones are not read before
}

// requestFor requests the nudges for the messages of a rule, all of which are due soon.
func (n *nudges) requestFor(ctx context.Context, rl *rule, clock *judge.Clock) {
	switch {
	case rl.slot != nil:
		n.Want(ctx, rl.slot.SlotStart(), rl.slot.SlotEnd.Add(clock.Grain()))
	case isNear(clock, rl.ref.Deadline) && rl.ref.Missed == nil:
		due := rl.ref.Deadline.Add(clock.Grain())
		n.Want(ctx, due, due)
	}
}

// isNudged reports whether the broker expires the message of wt at its deadline, at the first
// nudge.
func (wt *watch) isNudged(s Settings) bool {
	return wt.state == stateWaiting && !wt.attempt.isMade() && wt.isNative(s)
}

// awaitNudges has watches that are due wait for their nudge, as far as nudges come first. It
// returns the others.
func (e *entity) awaitNudges(ctx context.Context, due []*watch) (others []*watch) {
	if !e.isFast() {
		return due
	}
	for _, wt := range due {
		if !wt.isNudged(e.settings.Settings) || e.w.clock.Now().Before(wt.due) {
			others = append(others, wt)
			continue
		}
		due := wt.due.Add(e.w.clock.Grain())
		e.nudges.Want(ctx, due, due)
		e.nudges.ripe = append(e.nudges.ripe, wt)
	}
	return others
}

// take returns the watches whose nudge was made, once the rest is over. It does not wait longer
// than nearDeadline for a nudge that cannot be made.
func (n *nudges) take(now time.Time, grain time.Duration) (ripe []*watch) {
	if now.Before(n.rest) {
		return nil
	}
	n.ripe = slices.DeleteFunc(n.ripe, func(wt *watch) bool {
		_, made := n.MadeFor(wt.due.Add(grain))
		isRipe := made || now.Sub(wt.next) >= nearDeadline
		if isRipe {
			ripe = append(ripe, wt)
		}
		return isRipe
	})
	return ripe
}

// readLetters reads the dead letters of messages whose nudge was made, and looks for those that
// have none.
func (e *entity) readLetters(ctx context.Context, ripe []*watch) error {
	pages := e.letters.view.Peeks
	err := e.findLetters(ctx, ripe)
	pages = e.letters.view.Peeks - pages
	e.nudges.rest = time.Now().Add(min(time.Duration(pages)*restPerPage, restMax))
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
