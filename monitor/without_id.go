// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"strings"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
)

// standsForMany reports whether wt is over several messages: its reference has no message-id,
// or others share it.
func (wt *watch) standsForMany() bool {
	return wt.slot == nil && wt.state != stateMissed && wt.want.Number == 0 && (wt.ref.WithoutID() || wt.duplicates != 0)
}

const (
	// maxFound bounds the watches that one search makes. It is more than a batch holds, but a
	// companion may state any window. The search continues after findMoreAfter.
	maxFound      = 5000
	findMoreAfter = time.Second
)

// A manySearch is the search of one such watch.
type manySearch struct {
	wt    *watch
	want  search.Want
	next  time.Time // by the clock of the broker: the first far deadline; zero: none
	found []*watch

	// Of duplicates:
	ownDeadLetter bool            // a dead letter was found in its window
	outside       []*link.Message // the other dead letters
}

// inUse holds the messages that have a watch, or are about to get one.
type inUse struct {
	identities map[search.Identity]bool
	named      map[string]bool          // message-ids of messages that were not seen yet
	ids        map[string]bool          // of all
	forwarded  map[search.Identity]bool // where their dead letters are forwarded

	taken int // by this search
}

// collectMany replaces the watches that stand for several messages by watches over the messages
// in their windows: on the work queue, among the dead letters, and among messages that could
// not be forwarded. A message with a far deadline is searched for again at that deadline. A
// message that is found nowhere was received in time.
func (e *entity) collectMany(ctx context.Context, due []*watch) ([]*watch, error) {
	var all []*manySearch
	rest := slices.DeleteFunc(slices.Clone(due), func(wt *watch) bool {
		if !wt.standsForMany() {
			return false
		}
		g := &manySearch{wt: wt, want: search.Want{FirstFit: wt.want.FirstFit, Agreed: wt.want.Agreed}}
		g.want.Seek(&wt.ref)
		if upTo := wt.want.UpTo; !upTo.IsZero() {
			g.want.Until = upTo
		}
		g.want.Endless, g.want.Since = e.settings.known && e.settings.DefaultMessageTimeToLive == 0, e.settings.DefaultSince
		all = append(all, g)
		return true
	})
	if len(all) == 0 {
		return due, nil
	}
	h := inUse{identities: map[search.Identity]bool{}, named: map[string]bool{}, ids: map[string]bool{}, forwarded: map[search.Identity]bool{}}
	for _, wt := range slices.Concat(e.watches, e.waiting.watches, rest) {
		h.identities[wt.want.Identity] = true
		if wt.ref.WithoutID() {
			continue
		}
		h.ids[wt.ref.MessageID] = true
		if wt.want.Number == 0 {
			h.named[wt.ref.MessageID] = true
		}
	}
	slices.SortFunc(all, func(a, b *manySearch) int { return a.want.From.Compare(b.want.From) })
	for i := 0; i < len(all); {
		n, until := i+1, all[i].want.Until
		for ; n < len(all) && !all[n].want.From.After(until); n++ {
			if u := all[n].want.Until; u.After(until) {
				until = u
			}
		}
		if err := e.collectIn(ctx, all[i].want.From, until, all[i:n], &h); err != nil {
			for _, g := range all {
				e.dropFound(ctx, g.found)
			}
			return due, err
		}
		i = n
	}
	for _, g := range all {
		rest = append(rest, g.found...)
		e.concludeMany(ctx, g)
	}
	return rest, nil
}

// collectIn searches one window for the messages of all of gs.
func (e *entity) collectIn(ctx context.Context, from, until time.Time, gs []*manySearch, h *inUse) error {
	now := e.w.clock.Now().Add(-e.w.clock.Grain())
	withoutID, byID := splitManySearches(gs)
	give := func(m *link.Message, missed bool) {
		for _, g := range byID[m.MessageID] {
			e.assignDuplicate(g, m, missed, now, h)
		}
		if h.identities[search.IdentityOf(m)] || h.named[m.MessageID] {
			return
		}
		for _, g := range withoutID {
			if m.EnqueuedTime.Before(g.want.From) || m.EnqueuedTime.After(g.want.Until) || !g.standsFor(m, e.settings.Settings) {
				continue
			}
			if at := judge.Message(&g.wt.ref, m, e.settings.Settings, now).Deadline; !missed && at.After(now.Add(nearDeadline)) && !e.hasReminders(&g.wt.ref, m) {
				g.searchAgain(at)
				continue
			}
			if h.taken == maxFound {
				g.searchAgain(now.Add(findMoreAfter))
				return
			}
			e.take(g, m, missed, h)
			return
		}
	}
	if err := e.work.Between(ctx, from, until, func(m *link.Message) { give(m, false) }); err != nil {
		return err
	}
	// A dead letter whose notification is running gets a watch too: this companion may be all that
	// is left of it.
	if err := e.dead.Between(ctx, from, until, func(m *link.Message) {
		event := e.eventID(m.SequenceNumber, m.EnqueuedTime)
		switch {
		case e.isUnreceived(m) && !e.w.notified.IsFinal(event):
			give(m, true)
		case e.isUnreceived(m):
			for _, g := range byID[m.MessageID] {
				g.wt.noteEvent(event)
			}
		}
	}); err != nil {
		return err
	}
	for _, same := range byID {
		for _, g := range same {
			if g.ownDeadLetter {
				continue
			}
			for _, m := range g.outside {
				e.takeDeadDuplicate(g, m, h)
			}
		}
	}
	if len(withoutID) == 0 {
		return nil // forwarded messages are followed by message-id
	}
	if e.settings.forwardDead == "" {
		return nil
	}
	return e.collectForwarded(ctx, withoutID, h)
}

// take makes a watch over m, for g.
func (e *entity) take(g *manySearch, m *link.Message, missed bool, h *inUse) *watch {
	h.taken++
	h.identities[search.IdentityOf(m)], h.ids[m.MessageID] = true, true
	wt := g.watchOver(m)
	if missed {
		wt.expired(e.missed(wt, m))
	}
	g.found = append(g.found, wt)
	return wt
}

// collectForwarded searches the forwarded dead letters for messages that expired before any
// check. They have new stamps, or kept their old ones.
func (e *entity) collectForwarded(ctx context.Context, gs []*manySearch, h *inUse) error {
	now := e.w.clock.Now()
	from := now
	for _, g := range gs {
		if g.want.From.Before(from) {
			from = g.want.From
		}
	}
	return e.deadTargetError(ctx, e.openDeadTarget(ctx).Between(ctx, from, now.Add(search.WindowMargin), func(m *link.Message) {
		if !e.isUnreceived(m) || !strings.EqualFold(m.DeadLetterSource, e.name) || e.w.notified.IsFinal(e.eventID(m.SequenceNumber, m.EnqueuedTime)) {
			return
		}
		// A message without an id is notified again if its old number was notified: otherwise
		// another one might be missed.
		if m.MessageID == "" && h.forwarded[search.IdentityOf(m)] || m.MessageID != "" && (h.ids[m.MessageID] || e.w.notified.Has(e.forwardedID(m.MessageID))) {
			return
		}
		for _, g := range gs {
			at := m.EnqueuedTime
			old := !at.Before(g.want.From) && !at.After(g.want.Until)
			if !old && at.Before(g.wt.ref.DeadlineAt(g.want.From)) || !g.standsFor(m, e.settings.Settings) {
				continue
			}
			if h.taken == maxFound {
				g.searchAgain(now.Add(findMoreAfter))
				return
			}
			h.taken++
			h.ids[m.MessageID], h.forwarded[search.IdentityOf(m)] = true, true
			wt := g.watchOver(m)
			wt.ref = g.wt.ref
			wt.ref.MessageID, wt.ref.SessionID = m.MessageID, m.SessionID
			wt.expired(e.missedElsewhere(wt, m))
			g.found = append(g.found, wt)
			return
		}
	}))
}

// standsFor reports whether m may belong to g, if m was enqueued in its window: m has the deadline
// of the reference, by its own statement or by the settings of its entity.
func (g *manySearch) standsFor(m *link.Message, s Settings) bool {
	if search.Pending(m) || g.want.NotWanted(m) {
		return false
	}
	if judge.Agrees(&g.wt.ref, m, s) {
		return true
	}
	switch g.wt.ref.Stated {
	case "entity", "default":
		return m.TimeToLive == 0 && !search.StatesDeadline(m)
	}
	return false
}

// watchOver makes a watch over m. In this worker, the sequence number and the stamp identify it. A
// rewritten companion names it by the message-id that the broker gave it.
func (g *manySearch) watchOver(m *link.Message) *watch {
	ref := g.wt.ref
	ref.MessageID, ref.SessionID, ref.Notified = m.MessageID, m.SessionID, ""
	ref.Deadline = ref.DeadlineAt(m.EnqueuedTime)
	if !judge.ScheduledBy(&ref, m) {
		ref.Sent = m.EnqueuedTime // when it was scheduled is unknown
	}
	if at := m.EnqueuedTime; ref.Stated != "default" || !at.Before(ref.From.Add(-search.StampPrecision)) && !at.After(ref.Until.Add(search.StampPrecision)) {
		ref.From, ref.Until = at, at // or it is of another send, maybe under another default
	}
	g.wt.companion.Add(1) // its companion is completed after the message is handled
	wt := &watch{ref: ref, companion: g.wt.companion, next: g.wt.next, hops: g.wt.hops}
	wt.want = search.Want{Identity: search.IdentityOf(m), Ref: &wt.ref, Endless: g.want.Endless, Since: g.want.Since} // it may have only a completion deadline
	return wt
}

// searchAgain continues the search at the instant at of the clock of the broker, or before.
func (g *manySearch) searchAgain(at time.Time) {
	if g.next.IsZero() || at.Before(g.next) {
		g.next = at
	}
}

// concludeMany ends the watch of g, or continues its search: while a send may still arrive, at the
// next deadline, and where messages were forwarded to.
func (e *entity) concludeMany(ctx context.Context, g *manySearch) {
	wt := g.wt
	switch open := wt.open(e.w.clock.Now()); {
	case wt.duplicates == whilePresent:
		wt.companion.Done(ctx, nil)
	case open > 0:
		wt.checks++
		e.later(ctx, wt, min(open, checkAgainMin<<min(wt.checks, 10)))
	case !g.next.IsZero():
		e.rewrite(ctx, wt, g.next)
	case e.settings.forwardTo != "" && wt.duplicates == 0:
		e.follow(ctx, wt)
	default:
		wt.companion.Done(ctx, nil)
	}
}
