// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/metrics"
	"overdue/monitor/nudge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// What the range cache has of a slot was on the work queue when it was read. Where many deadlines are
// missed, what nobody can have received since has expired. Elsewhere most of it is found among the
// dead letters. The rest is searched for, and what is found nowhere was received, or it has expired
// and somebody has taken its dead letter.

// needsProof reports whether missed deadlines are shown by what was on the work queue, as far as
// nobody else received: dead letters may be taken away, or are too many to read.
func (e *entity) needsProof() bool { return e.deadLetters() != search.LettersStay || e.hasMany() }

// slotsOf returns the slots that some of the watches are over.
func slotsOf(watches []*watch) (slots []*scheduler.Companion) {
	for _, wt := range watches {
		if wt.slot != nil {
			slots = append(slots, wt.slot)
		}
	}
	return slots
}

// cacheSlots reads the messages of slots before a nudge expires them, where that is evidence.
func (e *entity) cacheSlots(ctx context.Context, due []*watch) error {
	slots := slotsOf(due)
	if len(slots) == 0 || !e.needsProof() {
		return nil
	}
	windows := judge.WindowsOf(slots...)
	for i := range windows {
		if err := e.observeReads(ctx, &windows[i]); err != nil {
			return err
		}
	}
	fetched := e.prefetcher.Fetch(ctx, judge.RangesOf(windows)...)
	for range windows {
		if err := <-fetched; err != nil {
			return err
		}
	}
	all := time.Since(e.clearedAt) < clearedFor
	for i := range windows {
		all = all && e.hasAllOf(&windows[i])
	}
	e.noteProven(slots, all)
	return nil
}

// noteProven records for which slots no dead letter has to be read.
func (e *entity) noteProven(slots []*scheduler.Companion, all bool) {
	if !all {
		e.proven.Store(nil)
		return
	}
	ends := func(a, b *scheduler.Companion) int { return a.SlotEnd.Compare(b.SlotEnd) }
	of := search.TimeRange{From: search.Millis(slices.MinFunc(slots, ends).SlotStart()), Until: search.Millis(slices.MaxFunc(slots, ends).SlotEnd)}
	if before := e.proven.Load(); before != nil && of.From <= before.Until {
		of = search.TimeRange{From: before.From, Until: max(of.Until, before.Until)}
	} else {
		of.From += soonWithin.Milliseconds() // the last nudges for the slots before
	}
	e.proven.Store(&of)
}

// hasAllOf reports whether the range cache has all messages of w that may have expired: what it
// lacks of a slot was gone before that slot began, so it was received in time.
func (e *entity) hasAllOf(w *judge.Window) bool {
	latest, known := e.w.clock.NotAfter()
	if !known || !e.settings.known || e.settings.DefaultSince.After(duration.Later(w.From, e.w.states.get(e.key).created)) {
		return false
	}
	for i, slot := range w.Slots {
		if i > 0 && w.Slots[i-1] == slot { // it is named once for each time to live
			continue
		}
		of := judge.WindowsOf(slot)
		for i := range of {
			begins, in := time.Now().Add(of[i].Begins().Sub(latest)), of[i].TimeRange()
			if w.TimeRange().Holds(in.From) && !e.ranges.CoveredBy(begins, in) {
				return false
			}
		}
	}
	return true
}

// readPause is how long after a read that a nudge waits for nothing is read for it again.
const readPause = 25 * time.Millisecond

// mayNudge reports whether a nudge may expire what becomes due until an instant of the clock of the
// broker: all of it was read, or dead letters stay. What the nudge waits for is read: when the
// companion of its slot came in, the last messages of the slot were too new for that.
func (e *entity) mayNudge(ctx context.Context, until time.Time) bool {
	if e.deadLetters() == search.LettersStay {
		return true
	}
	unread := e.slots.Unread(until, &e.ranges)
	if unread != nil && !e.prefetcher.Busy() && time.Since(e.readForNudge) >= readPause {
		e.readForNudge = time.Now()
		e.prefetcher.Fetch(ctx, unread...)
	}
	return unread == nil
}

// nudgeAtOnce requests nudges for watches that come in, although e may be busy with a check. What
// these expire is read before.
func (e *entity) nudgeAtOnce(ctx context.Context, watches []*watch) {
	slots := slotsOf(watches)
	e.slots.Add(e.w.clock.Now(), slots...)
	if !e.nudgesFirst.Load() {
		return
	}
	if len(slots) > 0 && e.needsProof() {
		e.prefetcher.Fetch(ctx, judge.RangesOf(judge.WindowsOf(slots...))...)
	}
	for _, wt := range watches {
		if !e.isUnseen(wt) {
			e.nudgeFor(ctx, wt)
		}
	}
}

// isProven reports whether missed deadlines are known at the instant now of the clock of the broker
// without their dead letters, as long as nobody else receives.
func (e *entity) isProven(now time.Time) bool {
	of := e.proven.Load()
	return of != nil && of.Holds(search.Millis(now)) && e.hasMany()
}

// waitingIn calls see with the messages on the work queue that were enqueued in the window. For
// messages from the cache it calls noted instead.
func (e *entity) waitingIn(ctx context.Context, w *judge.Window, see func(*link.Message), noted func(*search.CachedMessage)) error {
	read := func(ctx context.Context, s search.TimeRange, see func(*link.Message) (more bool)) (bool, error) {
		err := e.work.Between(ctx, s.First(), s.Last(), func(m *link.Message) { see(m) }) // all of it
		return e.work.Cursor, err
	}
	if e.work.Cursor {
		e.ranges.Reset()
	}
	if err := e.observeReads(ctx, w); err != nil {
		return err
	}
	return e.ranges.Waiting(ctx, w.TimeRange(), e.finalRanges(), read, see, w.Due(e.settings.Settings), noted)
}

// finalRanges returns the stamp from which on messages may still be enqueued.
func (e *entity) finalRanges() int64 { return search.Millis(e.w.clock.Now().Add(-search.SettledAge)) }

// observeReads has nudges show whether what is read of a window from now on is evidence: it is for
// as long as nobody receives.
func (e *entity) observeReads(ctx context.Context, w *judge.Window) error {
	proof := e.needsProof()
	e.ranges.SetWhole(proof)
	if !proof || !e.nudgeReachesAll() || e.order() != nudge.NudgeFirst && !e.ranges.Reads(w.TimeRange()) {
		return nil
	}
	since, steady, err := e.nudger.Begin(ctx, &e.work, &e.dead, time.Now())
	if err != nil {
		return err
	}
	if steady && e.ranges.ReadBefore(since) {
		e.ranges.Refresh()
	}
	return e.seeAgain(ctx, slices.Concat(e.watches, e.waiting.watches), since)
}

// inOrder returns what searches for these messages by their numbers.
func inOrder(noted map[search.Identity]search.CachedMessage) (wants []*search.Want) {
	for _, at := range slices.SortedFunc(maps.Keys(noted), func(a, b search.Identity) int { return cmp.Compare(a.Number, b.Number) }) {
		wants = append(wants, &search.Want{Identity: at})
	}
	return wants
}

// findCached finds messages that were on the work queue when a range was read, and whose dead
// letters nobody has to find if nobody has received since.
func (e *entity) findCached(watches []*watch) {
	if !e.needsProof() || e.ranges.Empty() {
		return
	}
	named := e.namedIn(time.Time{}, search.Forever, filter(watches, func(wt *watch) bool { return !wt.ref.From.IsZero() }))
	if len(named) == 0 {
		return
	}
	due := search.Due{TimeRange: search.TimeRange{From: math.MaxInt64}, Most: e.settings.DefaultMessageTimeToLive}
	for _, w := range named {
		due.From = min(due.From, search.Millis(w.Ref.DeadlineAt(w.From)))
		due.Until = max(due.Until, search.Millis(w.Ref.DeadlineAt(w.Until))+1)
	}
	names, seenAt := search.ByMessageID(named), map[search.Identity]time.Time{}
	choose := e.chooser(func(m *link.Message) bool { return !e.w.notified.Has(e.eventID(m.SequenceNumber, m.EnqueuedTime)) })
	e.ranges.Named(names, due, func(m *search.CachedMessage) {
		if search.Match(names[m.Whole.MessageID], m.Whole, choose) {
			seenAt[m.Identity] = m.Read
		}
	})
	e.identify(named...)
	for _, wt := range watches {
		if at, cached := seenAt[wt.want.Identity]; cached {
			wt.evidence.present, wt.evidence.presentAt = wt.want.Found, at
			wt.judgement = e.judge(wt, e.w.clock.Now()) // its stamp shows when it is due
			if e.ranges.CoveredBy(time.Now(), search.TimeRange{From: search.Millis(wt.want.From), Until: search.Millis(wt.want.Until) + 1}) {
				wt.want.LateCandidate = time.Time{} // all that fits was there
			}
		}
	}
}

// proveCached notifies of the cached messages that have expired, as far as it is known without
// their dead letters, and takes them from noted. It reports whether the dead letters of the window
// need no read: it has no other messages that may have expired, and few of the cached ones are
// left.
func (u *slotSearch) proveCached(ctx context.Context, noted map[search.Identity]search.CachedMessage) (all bool, err error) {
	e := u.e
	if !e.hasMany() || !e.nudgeReachesAll() {
		return false, nil
	}
	shown, err := u.prove(ctx, maps.Values(noted))
	if err != nil {
		return false, err
	}
	var expired []*link.Message
	for _, m := range noted {
		if u.proves(shown, &m) {
			expired = append(expired, m.Whole)
		}
	}
	if cleared, err := e.isCleared(ctx, expired); err != nil || !cleared {
		return false, err
	}
	for _, m := range expired {
		u.take(ctx, m)
		delete(noted, search.IdentityOf(m))
	}
	return len(noted) <= maxConfirmed && e.hasAllOf(u.Window), nil
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
	named := e.namedIn(u.From, u.Until, u.rest)
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
	shown, err := u.prove(ctx, slices.Values(nowhere))
	if err != nil {
		return err
	}
	for _, m := range nowhere {
		switch {
		case u.proves(shown, &m):
			u.take(ctx, m.Whole)
		case e.deadLetters() == search.LettersTaken:
			e.w.metrics.Verdict(e.name, metrics.Unknown) // it was settled, or its dead letter was
		}
	}
	return nil
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

// prove returns what nudges have shown until the last of these messages expires.
func (u *slotSearch) prove(ctx context.Context, messages iter.Seq[search.CachedMessage]) (*nudge.Quiet, error) {
	var last time.Time
	for m := range messages {
		last = duration.Later(last, u.e.expiryOf(m.Whole))
	}
	return u.e.nudger.Prove(ctx, &u.e.work, &u.e.dead, last)
}

// proves reports whether m has expired, by what the nudges have shown.
func (u *slotSearch) proves(shown *nudge.Quiet, m *search.CachedMessage) bool {
	if m.Whole == nil {
		return false
	}
	slot, life := u.slotOf(m.Whole)
	return slot != nil && shown.Proves(m.Whole, m.Read, m.EnqueuedTime().Add(life+u.e.w.clock.Grain()))
}

// take makes a watch over m, which has expired, unless somebody was notified of it or it was
// settled.
func (u *slotSearch) take(ctx context.Context, m *link.Message) {
	e, at := u.e, m.EnqueuedTime
	slot, life := u.slotOf(m)
	if e.w.notified.IsFinal(e.eventID(m.SequenceNumber, at)) || e.w.cfg.Scheduler.Settled(e.name, &scheduler.Reference{
		MessageID: m.MessageID, SessionID: m.SessionID, Sent: at, From: at, Until: at, Deadline: at.Add(life), Within: life,
	}) {
		return
	}
	wt := slot.watchOver(m, life, u.known)
	e.expiredUnread(wt, m)
	u.handOn(ctx, wt)
}
