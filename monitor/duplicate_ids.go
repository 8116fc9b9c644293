// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"slices"
	"strings"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// Message-ids repeat: an app uses one for several messages, or the SDK sends a message twice. Then
// a reference matches several messages, and it is uncertain which one it was sent with. Mostly that
// is harmless: each message has a reference of its own, and the monitor assigns them one to one.
// But several monitors assign them in parallel and at different times. Two may take the same
// message, and none takes the other one.
//
// So a reference that matches several messages, or one uncertainly, stands for all of them. The
// monitor expires the overdue ones, and notifies of expired ones for any reference: the event has
// one id. That takes two more searches, one while its own message is there and one when it is gone.
// Message-ids that do not repeat cost nothing.

// duplicateWatch is what a watch has to do with the duplicates of a message; 0: nothing.
type duplicateWatch int

const (
	isDuplicate  duplicateWatch = iota + 1 // it is over one, which probably has a reference of its own
	whilePresent                           // it is over all of them, while the message itself is there
	whenGone                               // likewise, when it is gone: the watch is all that is left of the reference
)

// hint returns the sequence number that w probably has; 0: unknown, as where its id repeats, or
// without a window, where any message with that id may be it.
func (e *entity) hint(w *search.Want) int64 {
	seen := e.seen.Only(w.MessageID)
	if w.From.IsZero() || seen.Number == 0 || seen.EnqueuedTime().Before(w.From) || seen.EnqueuedTime().After(w.Until) {
		return 0
	}
	return seen.Number
}

// watchDuplicates adds a watch over the duplicates of the message of wt, if there may be any:
// once while the message is there, and once when it is gone.
func (e *entity) watchDuplicates(wt *watch) {
	if wt.ref.WithoutID() || wt.slot != nil || wt.duplicates != 0 || wt.ref.Missed != nil {
		return
	}
	kind := whilePresent
	switch {
	case wt.state == stateMissed || wt.state == stateGone && wt.open(e.w.clock.Now()) <= 0:
		kind = whenGone
	case wt.duplicatesWatched || wt.state == stateGone:
		return
	}
	upTo, some := e.mayHaveDuplicates(wt)
	if !some {
		return
	}
	wt.duplicatesWatched = true
	wt.companion.Add(1)
	ref := wt.ref
	ref.Warned, ref.Incomplete = 0, false // none of these has been notified
	var events []string
	if wt.state == stateMissed {
		events = []string{e.eventID(wt.missed.SequenceNumber, wt.missed.EnqueuedTime)}
	}
	e.add(&watch{
		ref: ref, duplicates: kind, events: events, companion: wt.companion, next: time.Now(), hops: wt.hops,
		want: search.Want{FirstFit: wt.want.FirstFit, Agreed: wt.want.Agreed, UpTo: upTo},
	})
}

// mayHaveDuplicates reports whether there may be duplicates of the message of wt, and the
// latest enqueued-time that they can have; zero: any.
func (e *entity) mayHaveDuplicates(wt *watch) (upTo time.Time, some bool) {
	if wt.want.Duplicates || wt.ref.From.IsZero() {
		return time.Time{}, wt.want.Duplicates
	}
	own := wt.want.Identity
	if own.Number == 0 && wt.state == stateMissed {
		own = search.Identity{Number: wt.missed.SequenceNumber, Enqueued: wt.missed.EnqueuedTime.UnixMilli()}
	}
	seen := e.seen.Last(wt.ref.MessageID)
	if own.Number != 0 && seen.After(own) && !seen.EnqueuedTime().After(wt.ref.Until.Add(search.WindowMargin)) {
		return time.Time{}, true
	}
	return wt.want.LateCandidate, !wt.want.LateCandidate.IsZero()
}

// splitManySearches separates searches for messages without id from searches for duplicates, by
// message-id.
func splitManySearches(gs []*manySearch) (withoutID []*manySearch, byID map[string][]*manySearch) {
	byID = map[string][]*manySearch{}
	for _, g := range gs {
		if g.wt.duplicates == 0 {
			withoutID = append(withoutID, g)
			continue
		}
		byID[g.want.MessageID] = append(byID[g.want.MessageID], g)
	}
	return withoutID, byID
}

// assignDuplicate gives m, which has the message-id of g, to g, if no other watch has it.
func (e *entity) assignDuplicate(g *manySearch, m *link.Message, missed bool, now time.Time, h *inUse) {
	if search.Pending(m) || !g.want.Fits(m) {
		return
	}
	if missed {
		e.assignDeadDuplicate(g, m, h)
		return
	}
	if h.identities[search.IdentityOf(m)] {
		g.wt.noteEvent(e.eventID(m.SequenceNumber, m.EnqueuedTime))
		return
	}
	// A message that is not overdue and has another deadline is left to its own reference, unless
	// it may belong to g.
	ours := !g.want.Agreed || search.IdentityOf(m) == g.want.FirstFit || judge.Agrees(&g.wt.ref, m, e.settings.Settings)
	j := e.judgeFound(&g.wt.ref, &g.want, m, now)
	next := j.Deadline
	switch {
	case j.Overdue || ours && !next.IsZero() && !next.After(now.Add(nearDeadline)):
	case ours && e.hasReminders(&g.wt.ref, m) && e.adoptedDuplicates[search.IdentityOf(m)].IsZero():
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
	e.adoptedDuplicates.Set(search.IdentityOf(m), now) // or each reference would write one
	wt := e.take(g, m, false, h)
	wt.duplicates = isDuplicate
	g.wt.noteEvent(e.eventID(m.SequenceNumber, m.EnqueuedTime))
	if !next.IsZero() && !judge.Agrees(&wt.ref, m, e.settings.Settings) {
		// The companion is rewritten with this deadline.
		wt.ref.Within, wt.ref.Deadline, wt.ref.Stated = 0, next, judge.HowStated(m, e.settings.Settings)
	}
}

// assignDeadDuplicate is assignDuplicate for a dead letter that has expired. One that was
// enqueued before the send of g belongs to another send, unless there is no other.
func (e *entity) assignDeadDuplicate(g *manySearch, m *link.Message, h *inUse) {
	r := &g.wt.ref
	if r.From.IsZero() || g.want.Agreed && search.IdentityOf(m) != g.want.FirstFit && !judge.Agrees(r, m, e.settings.Settings) {
		return // any message that has ever expired may have that id
	}
	if at := m.EnqueuedTime; at.Before(r.From.Add(-search.StampPrecision)) || at.After(r.Until.Add(search.StampPrecision)) {
		g.outside = append(g.outside, m)
		return
	}
	g.ownDeadLetter = true
	e.takeDeadDuplicate(g, m, h)
}

func (e *entity) takeDeadDuplicate(g *manySearch, m *link.Message, h *inUse) {
	event := e.eventID(m.SequenceNumber, m.EnqueuedTime)
	g.wt.noteEvent(event)
	if h.identities[search.IdentityOf(m)] || h.taken == maxFound || e.w.notified.Has(event) {
		return // the watch that notifies of it keeps its companion until then
	}
	e.take(g, m, true, h).duplicates = isDuplicate
}

// maxEvents bounds what a companion says of events. One that it leaves out may be notified twice.
const maxEvents = 16

// noteEvent records that event is of a message with the id of wt.
func (wt *watch) noteEvent(event string) {
	if len(wt.events) < maxEvents && !slices.Contains(wt.events, event) {
		wt.events = append(wt.events, event)
	}
}

// rest is the reference of wt without what was notified, which the next worker would do again.
func (e *entity) rest(wt *watch) scheduler.Reference {
	ref := wt.ref
	events := slices.DeleteFunc(slices.Clone(wt.events), func(event string) bool { return !e.w.notified.IsFinal(event) })
	ref.Notified = strings.Join(events, ",")
	return ref
}

// restOf makes a watch of what rest has left.
func (w *Worker) restOf(wt *watch) {
	wt.duplicates, wt.events = whenGone, strings.SplitN(wt.ref.Notified, ",", maxEvents)
	for _, event := range wt.events {
		w.notified.Note(event)
	}
}
