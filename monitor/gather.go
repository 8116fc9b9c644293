// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"strings"
	"time"

	"overdue/internal/servicebus/link"
)

// gathers reports whether wt is over all messages that its reference stands for: one that names none, or whose own message
// others cannot be told from.
func (wt *watch) gathers() bool {
	return wt.slot == nil && wt.missed == nil && wt.want.number == 0 && (wt.ref.Unnamed() || wt.others != 0)
}

const (
	// gatherMost is how many messages one look makes watches of: more than a batch has, for whoever writes companions may say any
	// window. The others are looked for again after gatherAgain.
	gatherMost  = 5000
	gatherAgain = time.Second
)

// A gathering is what one such watch comes upon in one look.
type gathering struct {
	wt    *watch
	want  want
	next  time.Time // by the broker's clock: the first deadline that is too far off to be waited for; zero = none
	found []*watch

	// Of messages that have the id of its reference:
	own    bool            // one of the dead letters in its window was enqueued when its own was, most likely
	strays []*link.Message // the other dead letters
}

// inHand is what other watches of the entity are over, or about to find.
type inHand struct {
	seats map[seat]bool
	named map[string]bool // message-ids of those that have not been seen yet
	ids   map[string]bool // of all
	heirs map[seat]bool   // where their dead letters are forwarded

	gathered int // by this look
}

// gather replaces the watches over messages that were sent without names, or share one, by watches over those that are found in their
// windows: on the work queue, among the dead letters, and among what could not be forwarded. From there on they are like
// any other. Whose deadlines are far off is looked for again then; what is found nowhere was received in time.
func (e *entity) gather(ctx context.Context, due []*watch) ([]*watch, error) {
	var all []*gathering
	rest := slices.DeleteFunc(slices.Clone(due), func(wt *watch) bool {
		if !wt.gathers() {
			return false
		}
		g := &gathering{wt: wt, want: want{fit: wt.want.fit, agreed: wt.want.agreed}}
		g.want.sought(&wt.ref)
		if upTo := wt.want.upTo; !upTo.IsZero() {
			g.want.until = upTo
		}
		g.want.endless = e.traits.known && e.traits.DefaultMessageTimeToLive == 0
		all = append(all, g)
		return true
	})
	if len(all) == 0 {
		return due, nil
	}
	h := inHand{seats: map[seat]bool{}, named: map[string]bool{}, ids: map[string]bool{}, heirs: map[seat]bool{}}
	for _, wt := range slices.Concat(e.watches, e.waiting.watches, rest) {
		h.seats[wt.want.seat] = true
		if wt.ref.Unnamed() {
			continue
		}
		h.ids[wt.ref.MessageID] = true
		if wt.want.number == 0 {
			h.named[wt.ref.MessageID] = true
		}
	}
	slices.SortFunc(all, func(a, b *gathering) int { return a.want.from.Compare(b.want.from) })
	for i := 0; i < len(all); {
		n, until := i+1, all[i].want.until
		for ; n < len(all) && !all[n].want.from.After(until); n++ {
			if u := all[n].want.until; u.After(until) {
				until = u
			}
		}
		if err := e.gatherIn(ctx, all[i].want.from, until, all[i:n], &h); err != nil {
			for _, g := range all {
				e.abandonFound(ctx, g.found)
			}
			return due, err
		}
		i = n
	}
	for _, g := range all {
		rest = append(rest, g.found...)
		e.gathered(ctx, g)
	}
	return rest, nil
}

// gatherIn looks for the messages of all of gs in one window.
func (e *entity) gatherIn(ctx context.Context, from, until time.Time, gs []*gathering, h *inHand) error {
	now := e.w.clock.now().Add(-stampGrain)
	unnamed, namesakes := splitGatherings(gs)
	give := func(m *link.Message, missed bool) {
		for _, g := range namesakes[m.MessageID] {
			e.giveNamesake(g, m, missed, now, h)
		}
		if h.seats[seatOf(m)] || h.named[m.MessageID] {
			return
		}
		for _, g := range unnamed {
			if m.EnqueuedTime.Before(g.want.from) || m.EnqueuedTime.After(g.want.until) || !g.standsFor(m, e.traits.Settings) {
				continue
			}
			if at := judge(&g.wt.ref, m, e.traits.Settings, now).deadline; !missed && at.After(now.Add(nearDeadline)) && !e.hasMoments(&g.wt.ref, m) {
				g.again(at)
				continue
			}
			if h.gathered == gatherMost {
				g.again(now.Add(gatherAgain))
				return
			}
			e.take(g, m, missed, h)
			return
		}
	}
	if err := e.work.between(ctx, from, until, func(m *link.Message) { give(m, false) }); err != nil {
		return err
	}
	// One that is being told is adopted too: this companion may be all that is left of it.
	if err := e.dead.between(ctx, from, until, func(m *link.Message) {
		if expired(m) && !e.w.told.over(e.eventID(m.SequenceNumber, m.EnqueuedTime)) {
			give(m, true)
		}
	}); err != nil {
		return err
	}
	for _, same := range namesakes {
		for _, g := range same {
			e.giveStrays(g, h)
		}
	}
	if len(unnamed) == 0 {
		return nil // what has moved on is followed by name
	}
	if e.traits.forwardDead != "" {
		if err := e.gatherForwarded(ctx, unnamed, h); err != nil {
			return err
		}
	}
	if e.traits.forwardTo == "" {
		return nil
	}
	e.transfer.cursor = e.traits.partitioned
	return e.transfer.between(ctx, from, until, func(m *link.Message) {
		if !e.w.told.over(e.eventID(m.SequenceNumber, m.EnqueuedTime)) {
			give(m, true)
		}
	})
}

// take makes a watch over m, for g.
func (e *entity) take(g *gathering, m *link.Message, missed bool, h *inHand) *watch {
	h.gathered++
	h.seats[seatOf(m)], h.ids[m.MessageID] = true, true
	wt := g.adopt(m)
	if missed {
		wt.missed = e.missed(wt, m)
	}
	g.found = append(g.found, wt)
	return wt
}

// gatherForwarded looks among the dead letters that e has forwarded for those that expired before anybody looked. They have been
// enqueued anew since their deadlines, or keep their old stamps.
func (e *entity) gatherForwarded(ctx context.Context, gs []*gathering, h *inHand) error {
	now := e.w.clock.now()
	from := now
	for _, g := range gs {
		if g.want.from.Before(from) {
			from = g.want.from
		}
	}
	return e.inHeir(ctx, e.openHeir(ctx).between(ctx, from, now.Add(windowMargin), func(m *link.Message) {
		if !expired(m) || !strings.EqualFold(m.DeadLetterSource, e.name) || e.w.told.over(e.eventID(m.SequenceNumber, m.EnqueuedTime)) {
			return
		}
		// One without any name that was told by the number it had before is told again, rather than another not at all.
		if m.MessageID == "" && h.heirs[seatOf(m)] || m.MessageID != "" && (h.ids[m.MessageID] || e.w.told.has(e.forwardedID(m.MessageID))) {
			return
		}
		for _, g := range gs {
			at := m.EnqueuedTime
			old := !at.Before(g.want.from) && !at.After(g.want.until)
			if !old && at.Before(g.wt.ref.DeadlineAt(g.want.from)) || !g.standsFor(m, e.traits.Settings) {
				continue
			}
			if h.gathered == gatherMost {
				g.again(now.Add(gatherAgain))
				return
			}
			h.gathered++
			h.ids[m.MessageID], h.heirs[seatOf(m)] = true, true
			wt := g.adopt(m)
			wt.ref = g.wt.ref
			wt.ref.MessageID, wt.ref.SessionID = m.MessageID, m.SessionID
			wt.missed = e.missedElsewhere(wt, m)
			g.found = append(g.found, wt)
			return
		}
	}))
}

// standsFor reports whether m may be one of those that the reference of g was sent with, if it was enqueued in its window: it has the
// deadline, by what it states itself or, where that has changed meanwhile, by what its entity gives it.
func (g *gathering) standsFor(m *link.Message, s Settings) bool {
	if pending(m) || g.want.spared(m) {
		return false
	}
	if agrees(&g.wt.ref, m, s) {
		return true
	}
	switch g.wt.ref.Stated {
	case "entity", "default":
		return m.TimeToLive == 0 && !statesDeadline(m)
	}
	return false
}

// adopt makes a watch over m, which is told by its number as long as it is in hand, and by what the broker calls it when it is
// written anew.
func (g *gathering) adopt(m *link.Message) *watch {
	ref := g.wt.ref
	ref.MessageID, ref.SessionID = m.MessageID, m.SessionID
	ref.Deadline = ref.DeadlineAt(m.EnqueuedTime)
	ref.From, ref.Until = m.EnqueuedTime, m.EnqueuedTime
	g.wt.held.add(1) // its companion is completed when the message is seen to
	wt := &watch{ref: ref, held: g.wt.held, since: g.wt.since, next: g.wt.next, hops: g.wt.hops}
	wt.want = want{seat: seatOf(m), ref: &wt.ref, endless: g.want.endless} // it may have no deadline, but have to be completed
	return wt
}

// again has more looked for at the instant at of the broker's clock, or before.
func (g *gathering) again(at time.Time) {
	if g.next.IsZero() || at.Before(g.next) {
		g.next = at
	}
}

// gathered ends the watch of g, or has it looked for more: while a send may still be under way, when the next deadline comes, and
// where messages have gone on to.
func (e *entity) gathered(ctx context.Context, g *gathering) {
	wt := g.wt
	switch open := wt.open(e.w.clock.now()); {
	case wt.others == othersBeside:
		wt.held.done(ctx, nil)
	case open > 0:
		wt.looks++
		e.later(ctx, wt, min(open, lookAgainMin<<min(wt.looks, 10)))
	case !g.next.IsZero():
		e.anew(ctx, wt, g.next)
	case e.traits.forwardTo != "" && wt.others == 0:
		e.follow(ctx, wt)
	default:
		wt.held.done(ctx, nil)
	}
}
