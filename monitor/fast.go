// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"context"
	"time"

	"github.com/tidwall/btree"

	"overdue/monitor/judge"
	"overdue/monitor/nudge"
	"overdue/monitor/search"
)

// Where dead letters are known to stay, the letter decides. Then no peek comes before the nudge.
// Nudges follow the deadlines in a goroutine of their own, and one read of letters by number serves
// all messages whose nudge was made. The queue is searched for messages without a letter.

const (
	// A read of letters is for maxRead messages at most, those with the next sequence numbers, which
	// share pages. After it none are read for restPerPage times its pages, but all that wait have
	// their turn within sweepTime. So few messages are notified of soon, and many share pages.
	maxRead     = 1024
	restPerPage = 10 * time.Millisecond
	sweepTime   = 4 * time.Second
)

// isFast reports whether nudges come first on e.
func (e *entity) isFast() bool { return e.settings.mayNudgeFirst(e.work) && e.letters.stay() }

// mayNudgeFirst reports whether one nudge expires all that is overdue, and its letters are found by
// number.
func (t *entitySettings) mayNudgeFirst(work *search.View) bool {
	return t.nudgeReachesAll() && !work.Unordered
}

// nudges are those of an entity in fast mode, and the watches that wait for theirs.
type nudges struct {
	*nudge.Nudger
	ripe     *btree.BTreeG[*watch] // by sequence number
	position *watch                // letters are read from behind it on; nil: from the first
	rest     time.Time             // by our clock: no letters are read before
}

func newNudges(cfg nudge.Config) nudges {
	byNumber := func(a, b *watch) bool {
		return cmp.Or(cmp.Compare(a.identity.Number, b.identity.Number), cmp.Compare(a.identity.Enqueued, b.identity.Enqueued)) < 0
	}
	return nudges{
		Nudger: nudge.New(cfg),
		ripe:   btree.NewBTreeGOptions(byNumber, btree.Options{NoLocks: true}),
	}
}

// requestFor requests the nudges for the messages of a rule, all of which are due soon.
func (n *nudges) requestFor(ctx context.Context, rl *rule, clock *judge.Clock) {
	switch {
	case rl.slot != nil:
		n.Want(ctx, rl.slot.SlotStart(), rl.slot.SlotEnd.Add(clock.Grain()))
	case isNear(clock, rl.ref.Deadline):
		due := rl.ref.Deadline.Add(clock.Grain())
		n.Want(ctx, due, due)
	}
}

// isNudged reports whether the broker expires the message of wt at its deadline, at the first
// nudge.
func (wt *watch) isNudged(s Settings) bool {
	return wt.state == stateWaiting && !wt.attempt.isMade() && wt.isNative(s)
}

// awaitNudges has watches that are due wait for their nudge where nudges come first. It does so,
// too, where they are more than a round takes, since they would expire in its nudge unseen. It
// returns the others.
func (e *entity) awaitNudges(ctx context.Context, due []*watch) (others []*watch) {
	isCrowd := len(due) > maxRound && e.settings.mayNudgeFirst(e.work) && !e.letters.areTaken()
	if !e.isFast() && !isCrowd {
		return due
	}
	for _, wt := range due {
		if !wt.isNudged(e.settings.Settings) || e.w.clock.Now().Before(wt.due) {
			others = append(others, wt)
			continue
		}
		due := wt.due.Add(e.w.clock.Grain())
		e.nudges.Want(ctx, due, due)
		e.nudges.ripe.Set(wt)
	}
	return others
}

// take returns watches whose nudge was made, once the rest is over. It does not wait longer than
// nearDeadline for a nudge that cannot be made.
func (n *nudges) take(now time.Time, grain time.Duration) (ripe []*watch) {
	if now.Before(n.rest) {
		return nil
	}
	collect := func(wt *watch) bool {
		_, made := n.MadeFor(wt.due.Add(grain))
		if made || now.Sub(wt.next) >= nearDeadline {
			ripe = append(ripe, wt)
		}
		return len(ripe) < maxRead
	}
	if n.position != nil {
		n.ripe.Ascend(n.position, collect)
	}
	if n.position = nil; len(ripe) == 0 {
		n.ripe.Scan(collect)
	}
	for _, wt := range ripe {
		n.ripe.Delete(wt)
		n.position = wt
	}
	return ripe
}

// takeAll returns all that wait.
func (n *nudges) takeAll() []*watch {
	all := n.ripe.Items()
	n.ripe.Clear()
	return all
}

// readLetters reads the dead letters of messages whose nudge was made, and looks for those that
// have none.
func (e *entity) readLetters(ctx context.Context, ripe []*watch) error {
	pages := e.letters.view.Peeks
	err := e.findLetters(ctx, ripe)
	pages = e.letters.view.Peeks - pages
	all := len(ripe) + e.nudges.ripe.Len()
	share := sweepTime * time.Duration(len(ripe)) / time.Duration(max(all, 1))
	e.nudges.rest = time.Now().Add(min(time.Duration(pages)*restPerPage, share))
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
