// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// Ids repeat: an app gives one to several messages, or the SDK sends one message twice. Then a reference fits several
// messages, and nobody can tell for certain which of them it was sent with. Mostly that does no harm, since each has a reference
// of its own and they are dealt out one to one. But monitors deal them out side by side, one after the other, and at different
// times: two may take the same message for theirs, and nobody the other one.
//
// So where a reference was seen to fit several messages, or is not certain that what it has taken is its own, it stands
// for all of them. What is overdue of them is expired, and what has expired and is not notified yet is notified, whoever else sees to it:
// one event has one id. That takes two more looks, at what is there and at what there is when its own is done with. Ids that do
// not repeat cost nothing.

// duplicateWatch says that a watch is over no message, but over what else its reference fits.
type duplicateWatch int

const (
	whilePresent duplicateWatch = iota + 1 // while its message is there
	whenGone                               // when it is not: nothing else is left of the reference
)

// certainFor is how long after its send began a message was enqueued that cannot be mistaken for one that was sent later. It
// MUST NOT be longer than windowMargin: who was sent later looks as far back.
const certainFor = windowMargin

// seek sets what is known of a message that has not been seen yet.
func (w *want) seek(r *scheduler.Reference) {
	w.ref, w.messageID, w.until = r, r.MessageID, forever
	if !r.From.IsZero() {
		w.from, w.likely, w.until = r.From.Add(-windowMargin), r.From, r.Until.Add(windowMargin)
	}
}

// checkStamp takes note if m, which was found for w, was enqueued when the message that is searched for hardly was. Then that may stand
// before it, or among the dead letters.
func (w *want) checkStamp(m *link.Message) {
	switch at := m.EnqueuedTime; {
	case w.likely.IsZero():
	case at.Before(w.likely.Add(-stampPrecision)):
		w.duplicates = true
	case at.After(w.likely.Add(certainFor)) || at.After(w.ref.Until.Add(stampPrecision)):
		w.lateCandidate = at
	}
}

// statesOtherDeadline reports whether m, whose deadline is not that of r, is not the message that r was sent with: it states another one, or
// none where that one does. A time to live may be capped on the way, by what is known of the entity.
func (e *entity) statesOtherDeadline(r *scheduler.Reference, m *link.Message) bool {
	at, within, _ := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] }) // of one that cannot be read there is none
	ours := func(d time.Duration) bool { return (d - r.Within).Abs() <= time.Millisecond }
	switch r.Stated {
	case "deadline":
		return at.Sub(r.Deadline).Abs() > time.Millisecond
	case "within":
		return !at.IsZero() || !ours(within) && !ours(m.TimeToLive)
	case "ttl":
		return statesDeadline(m) || !ours(m.TimeToLive) && !ours(shorter(m.TimeToLive, e.settings.shortest))
	case "default":
		return statesDeadline(m) || m.TimeToLive > 0
	}
	return false
}

// noteFit takes note that m fits.
func (w *want) noteFit(m *link.Message) {
	switch n := identityOf(m); {
	case pending(m) || n == w.firstFit:
	case w.firstFit == identity{}:
		w.firstFit = n
	default:
		w.duplicates = true
	}
}

// merge takes over what a check for the same message in another place has shown.
func (w *want) merge(o *want) {
	if m := o.found; m != nil && o.number == 0 {
		o.checkStamp(m)
	}
	w.firstFit, w.duplicates, w.agreed, w.lateCandidate = o.firstFit, w.duplicates || o.duplicates, w.agreed || o.agreed, later(w.lateCandidate, o.lateCandidate)
}

// hint is the number where the message of w probably stands, 0 if it was not seen.
func (e *entity) hint(w *want) int64 {
	seen := e.seen.last(w.messageID)
	if seen.number == 0 || seen.enqueuedTime().Before(w.from) || seen.enqueuedTime().After(w.until) {
		return 0
	}
	return seen.number
}

// watchDuplicates adds a watch over what else the reference of wt fits, if that may be anything, after a pass over wt: once
// while its message is there, and once when it is gone.
func (e *entity) watchDuplicates(wt *watch) {
	if wt.ref.Unnamed() || wt.slot != nil || wt.duplicate || wt.duplicates != 0 || wt.ref.Missed != nil {
		return
	}
	kind := whilePresent
	switch {
	case wt.missed != nil || wt.judgement.verdict == gone && wt.open(e.w.clock.now()) <= 0:
		kind = whenGone
	case wt.duplicatesWatched || wt.judgement.verdict == gone:
		return
	}
	upTo, some := e.mayHaveDuplicates(wt)
	if !some {
		return
	}
	wt.duplicatesWatched = true
	wt.companion.add(1)
	ref := wt.ref
	ref.Warned, ref.Incomplete = 0, false // of those nobody has been notified
	e.add(&watch{
		ref: ref, duplicates: kind, companion: wt.companion, since: wt.since, next: time.Now(), hops: wt.hops,
		want: want{firstFit: wt.want.firstFit, agreed: wt.want.agreed, upTo: upTo},
	})
}

// mayHaveDuplicates reports whether there may be other messages that the reference of wt fits, and how late they were enqueued at most;
// zero = no matter.
func (e *entity) mayHaveDuplicates(wt *watch) (upTo time.Time, some bool) {
	if wt.want.duplicates || wt.ref.From.IsZero() {
		return time.Time{}, wt.want.duplicates
	}
	own := wt.want.identity
	if own.number == 0 && wt.missed != nil {
		own = identity{wt.missed.SequenceNumber, wt.missed.EnqueuedTime.UnixMilli()}
	}
	seen := e.seen.last(wt.ref.MessageID)
	if own.number != 0 && seen.after(own) && !seen.enqueuedTime().After(wt.ref.Until.Add(windowMargin)) {
		return time.Time{}, true
	}
	return wt.want.lateCandidate, !wt.want.lateCandidate.IsZero()
}

// splitManySearches parts those over messages without names from those over duplicates, which come by their ids.
func splitManySearches(gs []*manySearch) (unnamed []*manySearch, namesakes map[string][]*manySearch) {
	namesakes = map[string][]*manySearch{}
	for _, g := range gs {
		if g.wt.duplicates == 0 {
			unnamed = append(unnamed, g)
			continue
		}
		namesakes[g.want.messageID] = append(namesakes[g.want.messageID], g)
	}
	return unnamed, namesakes
}

// assignDuplicate gives m, which has the id of g, to g, if g stands for it and no other watch is over it.
func (e *entity) assignDuplicate(g *manySearch, m *link.Message, missed bool, now time.Time, h *inUse) {
	if pending(m) || !g.want.fits(m) {
		return
	}
	if missed {
		e.assignDeadDuplicate(g, m, h)
		return
	}
	if h.identities[identityOf(m)] {
		return
	}
	// What is not overdue and has another deadline is left to its own reference, unless it may be that of g.
	ours := !g.want.agreed || identityOf(m) == g.want.firstFit || agrees(&g.wt.ref, m, e.settings.Settings)
	j := e.judgeFound(&g.wt.ref, &g.want, m, now)
	next := j.deadline
	switch {
	case j.verdict == overdue || ours && !next.IsZero() && !next.After(now.Add(nearDeadline)):
	case ours && e.hasReminders(&g.wt.ref, m) && !e.adoptedDuplicates[identityOf(m)]:
	case ours && !next.IsZero():
		g.searchAgain(next)
		return
	default:
		return
	}
	if h.taken == maxFound {
		g.searchAgain(now.Add(findMoreAfter))
		return
	}
	e.noteAdoptedDuplicate(identityOf(m))
	wt := e.take(g, m, false, h)
	wt.duplicate = true
	if !next.IsZero() && !agrees(&wt.ref, m, e.settings.Settings) {
		// As what it is rewritten.
		wt.ref.Within, wt.ref.Deadline, wt.ref.Stated = 0, next, howStated(m, e.settings.Settings)
	}
}

// assignDeadDuplicate is giveNamesake for a dead letter that has expired. Those that were enqueued before the send of g began are some other's,
// unless there is none besides.
func (e *entity) assignDeadDuplicate(g *manySearch, m *link.Message, h *inUse) {
	r := &g.wt.ref
	if r.From.IsZero() || g.want.agreed && identityOf(m) != g.want.firstFit && !agrees(r, m, e.settings.Settings) {
		return // anything may have that id that has ever expired
	}
	if at := m.EnqueuedTime; at.Before(r.From.Add(-stampPrecision)) || at.After(r.Until.Add(stampPrecision)) {
		g.outside = append(g.outside, m)
		return
	}
	g.ownDeadLetter = true
	e.takeDeadDuplicate(g, m, h)
}

// assignOutside gives what nothing better was found for.
func (e *entity) assignOutside(g *manySearch, h *inUse) {
	if g.ownDeadLetter {
		return
	}
	for _, m := range g.outside {
		e.takeDeadDuplicate(g, m, h)
	}
}

func (e *entity) takeDeadDuplicate(g *manySearch, m *link.Message, h *inUse) {
	if h.identities[identityOf(m)] || h.taken == maxFound || e.w.notified.has(e.eventID(m.SequenceNumber, m.EnqueuedTime)) {
		return // the watch that has it notified keeps its companion until then
	}
	e.take(g, m, true, h).duplicate = true
}

// maxAdoptedDuplicates bounds the duplicates of which is remembered that they have got a companion of their own by a check for others.
const maxAdoptedDuplicates = 1 << 14

// noteAdoptedDuplicate remembers that the duplicate there has a companion from now on: each of many references would write
// one for each message otherwise.
func (e *entity) noteAdoptedDuplicate(at identity) {
	if e.adoptedDuplicates == nil || len(e.adoptedDuplicates) == maxAdoptedDuplicates {
		e.adoptedDuplicates = map[identity]bool{}
	}
	e.adoptedDuplicates[at] = true
}
