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
	"overdue/monitor/search"
)

// What the range cache has of a slot was on the work queue when it was read. Most of it is found among
// the dead letters. The rest is searched for, and what is found nowhere was received, or it has expired
// and somebody has taken its dead letter.

// cacheSlots reads the messages of slots before a nudge expires them, where their dead letters may be
// taken away.
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
	if e.ranges.Whole = e.deadLetters() != search.LettersStay; e.ranges.Whole {
		if err := e.observeQuiet(ctx); err != nil {
			return err
		}
		if since, steady := e.quiet.Steady(); steady && e.ranges.ReadBefore(since) {
			e.ranges = search.RangeCache{Whole: true} // what is read now is evidence, other than that
		}
	}
	return e.ranges.Waiting(ctx, w.timeRange(), search.Millis(e.w.clock.now().Add(-search.SettledAge)), read, see, noted)
}

// observeQuiet checks whether somebody receives from the work queue, where a nudge comes first.
func (e *entity) observeQuiet(ctx context.Context) error {
	if e.order() != nudgeFirst {
		e.quiet = search.Quiet{}
		return nil
	}
	return e.quiet.Observe(ctx, &e.work, func() (search.Observation, bool) {
		now, known := e.w.notAfter()
		return search.Observation{Now: now, Nudges: e.nudger.lastNudges(), Life: func(m *link.Message) time.Duration {
			return duration.Shorter(m.TimeToLive, e.settings.DefaultMessageTimeToLive)
		}}, known
	})
}

func inOrder(noted map[search.Identity]search.CachedMessage) []search.Identity {
	return slices.SortedFunc(maps.Keys(noted), func(a, b search.Identity) int { return cmp.Compare(a.Number, b.Number) })
}

// maxConfirmed is how many cached messages are searched for before they are due.
const maxConfirmed = 100

// confirmCached makes watches over messages that the range cache has, before any of them is due.
// Those that are gone were received in time. Where there are too many to search for, all are taken
// to be there until they are due.
func (u *slotSearch) confirmCached(ctx context.Context, noted map[search.Identity]search.CachedMessage) error {
	e := u.e
	if len(noted) > maxConfirmed {
		for _, at := range inOrder(noted) {
			u.present(noted[at].Message())
		}
		return nil
	}
	var left []*search.Want
	for _, at := range inOrder(noted) {
		left = append(left, &search.Want{Identity: at})
	}
	if err := e.work.FindNumbered(ctx, left, nil); err != nil {
		return err
	}
	for _, n := range left {
		if n.Found != nil {
			u.present(n.Found)
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
	e := u.e
	var left, gone []*search.Want
	for _, at := range inOrder(noted) {
		left = append(left, &search.Want{Identity: at})
	}
	if err := e.work.FindNumbered(ctx, left, nil); err != nil {
		return err
	}
	named := e.namedIn(u.window, u.rest)
	u.assignFirst(named, nil)
	for _, n := range left {
		if n.Found == nil {
			gone = append(gone, n)
		} else {
			u.present(n.Found)
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
			u.deadLettered(n.Found)
		} else {
			nowhere = append(nowhere, noted[n.Identity])
		}
	}
	return u.decideNowhere(ctx, nowhere)
}

// decideNowhere decides about messages that waited on the work queue before their deadlines, and are
// neither there nor in the dead-letter queue. Where dead letters stay, they were received. Otherwise
// they have expired if nobody received meanwhile.
func (u *slotSearch) decideNowhere(ctx context.Context, nowhere []search.CachedMessage) error {
	e := u.e
	if len(nowhere) == 0 || e.deadLetters() == search.LettersStay {
		return nil
	}
	if err := e.observeQuiet(ctx); err != nil {
		return err
	}
	for _, m := range nowhere {
		switch {
		case m.Whole != nil && e.quiet.From(m.Read):
			u.expired(m.Whole)
		case e.deadLetters() == search.LettersTaken:
			e.w.metrics.verdict(e.name, verdictUnknown) // it was settled, or its dead letter was
		}
	}
	return nil
}

// expired assigns m, which has expired, and whose dead letter somebody has taken.
func (u *slotSearch) expired(m *link.Message) {
	slot, life := u.slotOf(u.e, m, u.known)
	if slot == nil || !m.EnqueuedTime.Add(life).Before(u.e.w.clock.now()) || u.e.w.notified.IsFinal(u.e.eventID(m.SequenceNumber, m.EnqueuedTime)) {
		return
	}
	wt := slot.watchOver(m, life, u.known)
	wt.expired(u.e.missed(wt, m))
	wt.missed.Evidence, wt.missed.DeadLetterReason = evidenceExpired, search.ReasonExpired
	u.found = append(u.found, wt)
}
