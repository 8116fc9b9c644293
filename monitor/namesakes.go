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
// for all of them. What is overdue of them is expired, and what has expired and is not told yet is told, whoever else sees to it:
// one event has one id. That takes two more looks, at what is there and at what there is when its own is done with. Ids that do
// not repeat cost nothing.

// others says that a watch is over no message, but over what else its reference fits.
type others int

const (
	othersBeside others = iota + 1 // while its message is there
	othersLeft                     // when it is not: nothing else is left of the reference
)

// surePart is how long after its send began a message was enqueued that cannot be mistaken for one that was sent later. It
// MUST NOT be longer than windowMargin: who was sent later looks as far back.
const surePart = windowMargin

// sought sets what is known of a message that has not been seen yet.
func (w *want) sought(r *scheduler.Reference) {
	w.ref, w.messageID, w.until = r, r.MessageID, farAhead
	if !r.From.IsZero() {
		w.from, w.likely, w.until = r.From.Add(-windowMargin), r.From, r.Until.Add(windowMargin)
	}
}

// doubt takes note if m, which was found for w, was enqueued when the message that is looked for hardly was. Then that may stand
// before it, or among the dead letters.
func (w *want) doubt(m *link.Message) {
	switch at := m.EnqueuedTime; {
	case w.likely.IsZero():
	case at.Before(w.likely.Add(-stampGrain)):
		w.namesakes = true
	case at.After(w.likely.Add(surePart)) || at.After(w.ref.Until.Add(stampGrain)):
		w.strange = at
	}
}

// foreign reports whether m, whose deadline is not that of r, is not the message that r was sent with: it states another one, or
// none where that one does. A time to live may be capped on the way, by what is known of the entity.
func (e *entity) foreign(r *scheduler.Reference, m *link.Message) bool {
	at, within, _ := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] }) // of one that cannot be read there is none
	ours := func(d time.Duration) bool { return (d - r.Within).Abs() <= time.Millisecond }
	switch r.Stated {
	case "deadline":
		return at.Sub(r.Deadline).Abs() > time.Millisecond
	case "within":
		return !at.IsZero() || !ours(within) && !ours(m.TimeToLive)
	case "ttl":
		return statesDeadline(m) || !ours(m.TimeToLive) && !ours(shorter(m.TimeToLive, e.traits.shortest))
	case "default":
		return statesDeadline(m) || m.TimeToLive > 0
	}
	return false
}

// meet takes note that m fits.
func (w *want) meet(m *link.Message) {
	switch n := seatOf(m); {
	case pending(m) || n == w.fit:
	case w.fit == seat{}:
		w.fit = n
	default:
		w.namesakes = true
	}
}

// learn takes over what a look for the same message in another place has shown.
func (w *want) learn(o *want) {
	if m := o.found; m != nil && o.number == 0 {
		o.doubt(m)
	}
	w.fit, w.namesakes, w.agreed, w.strange = o.fit, w.namesakes || o.namesakes, w.agreed || o.agreed, later(w.strange, o.strange)
}

// hint is the number where the message of w probably stands, 0 if it was not seen.
func (e *entity) hint(w *want) int64 {
	seen := e.memory.last(w.messageID)
	if seen.number == 0 || seen.at().Before(w.from) || seen.at().After(w.until) {
		return 0
	}
	return seen.number
}

// seekNamesakes adds a watch over what else the reference of wt fits, if that may be anything, after a pass over wt: once
// while its message is there, and once when it is gone.
func (e *entity) seekNamesakes(wt *watch) {
	if wt.ref.Unnamed() || wt.slot != nil || wt.namesake || wt.others != 0 || wt.ref.Missed != nil {
		return
	}
	kind := othersBeside
	switch {
	case wt.missed != nil || wt.judgement.verdict == Gone && wt.open(e.w.clock.now()) <= 0:
		kind = othersLeft
	case wt.company || wt.judgement.verdict == Gone:
		return
	}
	upTo, some := e.namesakes(wt)
	if !some {
		return
	}
	wt.company = true
	wt.held.add(1)
	ref := wt.ref
	ref.Warned, ref.Incomplete = 0, false // of those nobody has been told
	e.keep(&watch{
		ref: ref, others: kind, held: wt.held, since: wt.since, next: time.Now(), hops: wt.hops,
		want: want{fit: wt.want.fit, agreed: wt.want.agreed, upTo: upTo},
	})
}

// namesakes reports whether there may be other messages that the reference of wt fits, and how late they were enqueued at most;
// zero = no matter.
func (e *entity) namesakes(wt *watch) (upTo time.Time, some bool) {
	if wt.want.namesakes || wt.ref.From.IsZero() {
		return time.Time{}, wt.want.namesakes
	}
	own := wt.want.seat
	if own.number == 0 && wt.missed != nil {
		own = seat{wt.missed.SequenceNumber, wt.missed.EnqueuedTime.UnixMilli()}
	}
	seen := e.memory.last(wt.ref.MessageID)
	if own.number != 0 && seen.behind(own) && !seen.at().After(wt.ref.Until.Add(windowMargin)) {
		return time.Time{}, true
	}
	return wt.want.strange, !wt.want.strange.IsZero()
}

// splitGatherings parts those over messages without names from those over namesakes, which come by their ids.
func splitGatherings(gs []*gathering) (unnamed []*gathering, namesakes map[string][]*gathering) {
	namesakes = map[string][]*gathering{}
	for _, g := range gs {
		if g.wt.others == 0 {
			unnamed = append(unnamed, g)
			continue
		}
		namesakes[g.want.messageID] = append(namesakes[g.want.messageID], g)
	}
	return unnamed, namesakes
}

// giveNamesake gives m, which has the id of g, to g, if g stands for it and no other watch is over it.
func (e *entity) giveNamesake(g *gathering, m *link.Message, missed bool, now time.Time, h *inHand) {
	if pending(m) || !g.want.fits(m) {
		return
	}
	if missed {
		e.giveDead(g, m, h)
		return
	}
	if h.seats[seatOf(m)] {
		return
	}
	// What is not overdue and has another deadline is left to its own reference, unless it may be that of g.
	ours := !g.want.agreed || seatOf(m) == g.want.fit || agrees(&g.wt.ref, m, e.traits.Settings)
	j := e.judgeFound(&g.wt.ref, &g.want, m, now)
	next := j.deadline
	switch {
	case j.verdict == Overdue || ours && !next.IsZero() && !next.After(now.Add(nearDeadline)):
	case ours && e.hasMoments(&g.wt.ref, m) && !e.adopted[seatOf(m)]:
	case ours && !next.IsZero():
		g.again(next)
		return
	default:
		return
	}
	if h.gathered == gatherMost {
		g.again(now.Add(gatherAgain))
		return
	}
	e.noteAdopted(seatOf(m))
	wt := e.take(g, m, false, h)
	wt.namesake = true
	if !next.IsZero() && !agrees(&wt.ref, m, e.traits.Settings) {
		// As what it is written anew.
		wt.ref.Within, wt.ref.Deadline, wt.ref.Stated = 0, next, howStated(m, e.traits.Settings)
	}
}

// giveDead is giveNamesake for a dead letter that has expired. Those that were enqueued before the send of g began are some other's,
// unless there is none besides.
func (e *entity) giveDead(g *gathering, m *link.Message, h *inHand) {
	r := &g.wt.ref
	if r.From.IsZero() || g.want.agreed && seatOf(m) != g.want.fit && !agrees(r, m, e.traits.Settings) {
		return // anything may have that id that has ever expired
	}
	if at := m.EnqueuedTime; at.Before(r.From.Add(-stampGrain)) || at.After(r.Until.Add(stampGrain)) {
		g.strays = append(g.strays, m)
		return
	}
	g.own = true
	e.takeDead(g, m, h)
}

// giveStrays gives what nothing better was found for.
func (e *entity) giveStrays(g *gathering, h *inHand) {
	if g.own {
		return
	}
	for _, m := range g.strays {
		e.takeDead(g, m, h)
	}
}

func (e *entity) takeDead(g *gathering, m *link.Message, h *inHand) {
	if h.seats[seatOf(m)] || h.gathered == gatherMost || e.w.told.has(e.eventID(m.SequenceNumber, m.EnqueuedTime)) {
		return // the watch that has it told keeps its companion until then
	}
	e.take(g, m, true, h).namesake = true
}

// maxAdopted bounds the namesakes of which is remembered that they have got a companion of their own by a look for others.
const maxAdopted = 1 << 14

// noteAdopted remembers that the namesake there has a companion from now on: each of many references would write
// one for each message otherwise.
func (e *entity) noteAdopted(at seat) {
	if e.adopted == nil || len(e.adopted) == maxAdopted {
		e.adopted = map[seat]bool{}
	}
	e.adopted[at] = true
}
