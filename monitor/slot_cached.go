// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/nudge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// What the range cache has of a slot was on the work queue when it was read. Most of it is found
// among the dead letters. The rest is searched for, and what is found nowhere was received, or it
// has expired and somebody has taken its dead letter.

// cacheSlots reads the messages of slots before a nudge expires them, where their dead letters may
// be taken away.
func (e *entity) cacheSlots(ctx context.Context, due []*watch) error {
	slots := filter(due, func(wt *watch) bool { return wt.slot != nil })
	if len(slots) == 0 || e.deadLetters() == search.LettersStay {
		return nil
	}
	windows := windowsOf(slots)
	for i := range windows {
		if err := e.waitingIn(ctx, &windows[i], func(*link.Message) {}, func(search.CachedMessage) {}); err != nil {
			return err
		}
	}
	return nil
}

// waitingIn calls see with the messages on the work queue that were enqueued in the window. For
// messages from the cache it calls noted instead.
func (e *entity) waitingIn(ctx context.Context, w *window, see func(*link.Message), noted func(search.CachedMessage)) error {
	read := func(ctx context.Context, s search.TimeRange, see func(*link.Message)) (bool, error) {
		err := e.work.Between(ctx, s.First(), s.Last(), see)
		return e.work.Cursor, err
	}
	if e.work.Cursor {
		e.ranges = search.RangeCache{}
	}
	if e.ranges.Whole = e.deadLetters() != search.LettersStay; e.ranges.Whole && e.nudgeReachesAll() && (e.order() == nudge.NudgeFirst || e.ranges.Reads(w.timeRange())) {
		// What is read from now on is evidence for as long as nobody receives.
		since, steady, err := e.nudger.Begin(ctx, &e.work, &e.dead, time.Now())
		if err != nil {
			return err
		}
		if steady && e.ranges.ReadBefore(since) {
			e.ranges.Refresh()
		}
	}
	return e.ranges.Waiting(ctx, w.timeRange(), search.Millis(e.w.clock.Now().Add(-search.SettledAge)), read, see, noted)
}

// inOrder returns what searches for these messages by their numbers.
func inOrder(noted map[search.Identity]search.CachedMessage) (wants []*search.Want) {
	for _, at := range slices.SortedFunc(maps.Keys(noted), func(a, b search.Identity) int { return cmp.Compare(a.Number, b.Number) }) {
		wants = append(wants, &search.Want{Identity: at})
	}
	return wants
}

// maxConfirmed is how many cached messages are searched for before they are due.
const maxConfirmed = 100

// confirmCached makes watches over messages that the range cache has, before any of them is due.
// Those that are gone were received in time. Where there are too many to search for, all are taken
// to be there until they are due.
func (u *slotSearch) confirmCached(ctx context.Context, noted map[search.Identity]search.CachedMessage) error {
	left, began := inOrder(noted), time.Now()
	if len(noted) > maxConfirmed {
		for _, n := range left {
			u.present(noted[n.Identity].Message(), noted[n.Identity].Read)
		}
		return nil
	}
	if err := u.e.work.FindNumbered(ctx, left, nil); err != nil {
		return err
	}
	for _, n := range left {
		if n.Found != nil {
			u.present(n.Found, began)
		}
	}
	return nil
}

// readCached searches for messages that the range cache has and that are no dead letters. A
// consumer holds them, or has settled them.
func (u *slotSearch) readCached(ctx context.Context, noted map[search.Identity]search.CachedMessage) error {
	if len(noted) == 0 {
		return nil
	}
	e, began, left := u.e, time.Now(), inOrder(noted)
	var gone []*search.Want
	if err := e.work.FindNumbered(ctx, left, nil); err != nil {
		return err
	}
	named := e.namedIn(u.window, u.rest)
	u.assignFirst(named, nil)
	for _, n := range left {
		if n.Found == nil {
			gone = append(gone, n)
		} else {
			u.present(n.Found, began)
		}
	}
	e.identify(named...)
	if err := e.dead.FindNumbered(ctx, gone, nil); err != nil {
		return err
	}
	u.assignFirst(nil, nil) // the others that are named are searched for by name
	var nowhere []search.CachedMessage
	for _, n := range gone {
		if n.Found != nil { // given back and moved in the meantime
			u.deadLettered(ctx, n.Found)
		} else {
			nowhere = append(nowhere, noted[n.Identity])
		}
	}
	return u.decideNowhere(ctx, nowhere)
}

// decideNowhere decides about messages that waited on the work queue before their deadlines, and
// are neither there nor in the dead-letter queue. Where dead letters stay, they were received.
// Otherwise they have expired if nobody received meanwhile.
func (u *slotSearch) decideNowhere(ctx context.Context, nowhere []search.CachedMessage) error {
	e := u.e
	if len(nowhere) == 0 {
		return nil
	}
	if e.deadLetters() == search.LettersStay {
		u.awaitLetters(nowhere)
		return nil
	}
	var last time.Time
	for _, m := range nowhere {
		last = duration.Later(last, e.expiryOf(m.Whole))
	}
	return e.nudger.Prove(ctx, &e.work, &e.dead, last, func(q *nudge.Quiet) {
		for _, m := range nowhere {
			switch {
			case u.expired(q, &m):
			case e.deadLetters() == search.LettersTaken:
				e.w.metrics.verdict(e.name, verdictUnknown) // it was settled, or its dead letter was
			}
		}
	})
}

// awaitLetters makes watches over messages that have left the work queue about their deadlines,
// whose dead letters may come late. A few show whether they do.
func (u *slotSearch) awaitLetters(nowhere []search.CachedMessage) {
	now := u.e.w.clock.Now()
	for _, m := range nowhere[max(0, len(nowhere)-maxConfirmed):] {
		if due := u.e.expiryOf(m.Message()); due.Before(now) && now.Before(due.Add(letterWait)) {
			u.present(m.Message(), m.Read)
		}
	}
}

// expired assigns m, if it has expired and somebody has taken its dead letter.
func (u *slotSearch) expired(q *nudge.Quiet, m *search.CachedMessage) bool {
	if m.Whole == nil {
		return false
	}
	e := u.e
	slot, life := u.slotOf(e, m.Whole, u.known)
	if slot == nil || !q.Proves(m.Number, m.Read, m.EnqueuedTime().Add(life+e.w.clock.Grain())) {
		return false
	}
	at := m.EnqueuedTime()
	if e.w.notified.IsFinal(e.eventID(m.Number, at)) || e.w.cfg.Scheduler.Settled(e.name, &scheduler.Reference{
		MessageID: m.Whole.MessageID, SessionID: m.Whole.SessionID, Sent: at, From: at, Until: at, Deadline: at.Add(life), Within: life,
	}) {
		return true
	}
	wt := slot.watchOver(m.Whole, life, u.known)
	wt.expired(e.missed(wt, m.Whole))
	wt.missed.Evidence, wt.missed.DeadLetterReason = evidenceExpired, search.ReasonExpired
	u.found = append(u.found, wt)
	return true
}
