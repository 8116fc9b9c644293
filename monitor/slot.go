// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"slices"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/nudge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// errNoSlots: the scheduler writes no slot companions for such an entity.
var errNoSlots = errors.New("slot companions need an entity with ordered sequence numbers, so neither a topic nor a partitioned entity")

// window is a span of enqueued-times, both ends included, in which the messages of slots are
// found.
type window struct {
	from, until time.Time
	slots       []*watch // whose messages these are, by when they end
}

// searchSlots replaces the watches over slots by watches over the messages in their windows:
// those on the work queue, and dead letters that nobody has been notified of. A message that is
// found nowhere was received in time.
func (e *entity) searchSlots(ctx context.Context, due []*watch) ([]*watch, error) {
	var slots []*watch
	rest := slices.DeleteFunc(slices.Clone(due), func(wt *watch) bool {
		if wt.slot == nil {
			return false
		}
		slots = append(slots, wt)
		return true
	})
	if len(slots) == 0 {
		return due, nil
	}
	if e.settings.topic || e.settings.partitioned {
		for _, wt := range slots {
			wt.companion.Refuse(ctx, intake.Malformed, errNoSlots.Error())
		}
		return rest, nil
	}
	known := map[search.Identity]bool{}
	for _, list := range [][]*watch{e.watches, e.waiting.watches, rest} {
		for _, wt := range list {
			known[wt.want.Identity] = true
		}
	}
	windows := windowsOf(slots)
	var found []*watch
	for i := range windows {
		u := slotSearch{window: &windows[i], e: e, rest: rest, known: known}
		err := u.read(ctx)
		found = append(found, u.found...)
		if err != nil {
			e.dropFound(ctx, found)
			return due, err
		}
	}
	e.ranges.Clear(windows[0].timeRange().From, func(m search.CachedMessage) bool {
		return slices.ContainsFunc(windows, func(w window) bool {
			slot, _ := w.slotFor(m.Message(), e.settings.Settings)
			return slot != nil && w.timeRange().Holds(m.Enqueued)
		})
	})
	for _, wt := range slots {
		if e.mayBeHeld(wt) {
			e.rewrite(ctx, wt, duration.Later(e.w.clock.Now(), wt.slot.SlotEnd).Add(e.lockMost()/4))
			continue
		}
		wt.companion.Done(ctx, nil)
	}
	return append(rest, found...), nil
}

// timeRange is the stamps that lie in the window, and those that may have been cut from an
// instant in it.
func (w *window) timeRange() search.TimeRange {
	return search.TimeRange{From: search.Millis(w.from), Until: search.Millis(w.until) + 1}
}

// A slotSearch finds the messages of the slots of one window. From the same pages it takes the
// messages that other watches name, since such a message may belong to a slot as well and would
// be searched for again.
type slotSearch struct {
	*window
	e     *entity
	rest  []*watch
	known map[search.Identity]bool // the messages that have watches
	found []*watch

	early  bool                      // see isEarly
	err    error                     // of awaitRoom
	names  map[string][]*search.Want // of the rest, where is being read
	choose search.Chooser            // for these
}

// assignFirst gives the messages that are read from now on to these wants first.
func (u *slotSearch) assignFirst(wants []*search.Want, suits func(*link.Message) bool) {
	u.names = search.ByMessageID(wants)
	if len(wants) == 0 {
		return // and nobody chooses
	}
	choose := u.e.chooser(suits)
	u.choose = func(n *search.Want, m *link.Message) bool {
		if u.known[search.IdentityOf(m)] || !choose(n, m) {
			return false
		}
		u.known[search.IdentityOf(m)] = true
		return true
	}
}

// present assigns m, a message that was on the work queue at that instant of our clock.
func (u *slotSearch) present(m *link.Message, at time.Time) {
	if search.Match(u.names[m.MessageID], m, u.choose) {
		return
	}
	if slot, life := u.slotOf(u.e, m, u.known); slot != nil {
		wt := slot.watchOver(m, life, u.known)
		wt.deadLetterSought = !u.early
		if u.e.ranges.Whole { // or dead letters stay, and are the evidence
			wt.evidence.present, wt.evidence.presentAt = m, at
		}
		u.found = append(u.found, wt)
	}
}

// deadLettered assigns m, a dead letter. It includes one whose notification is running, since
// this companion may be all that is left of it. Where a search finds more than maxCollected
// messages, it is notified of at once.
func (u *slotSearch) deadLettered(ctx context.Context, m *link.Message) {
	if search.Match(u.names[m.MessageID], m, u.choose) {
		return
	}
	e := u.e
	if slot, life := u.slotOf(e, m, u.known); slot != nil && expired(m) && !e.w.notified.IsFinal(e.eventID(m.SequenceNumber, m.EnqueuedTime)) {
		wt := slot.watchOver(m, life, u.known)
		wt.expired(e.missed(wt, m))
		if (len(u.found)+e.notifiedAtOnce)%manyMin == manyMin-1 {
			e.noteOrder(nudge.ManyMissed) // a long search must not outlive it
		}
		if len(u.found) < maxCollected {
			u.found = append(u.found, wt)
			return
		}
		e.notifiedAtOnce++
		e.w.notify(ctx, e.name, wt)
		u.err = errors.Join(u.err, e.awaitRoom(ctx))
	}
}

const (
	// maxCollected is how many messages a search keeps until it is over.
	maxCollected = 20_000
	// maxUnnotified is how many events are on their way to the sinks when no more dead letters are
	// read, where these stay on their queue. Whether there is room again is asked every roomEvery.
	maxUnnotified = 50_000
	roomEvery     = 20 * time.Millisecond
)

// awaitRoom waits while the sinks are behind, if dead letters stay. It finds out whether they do.
func (e *entity) awaitRoom(ctx context.Context) error {
	for e.w.notifying.Load() > maxUnnotified && ctx.Err() == nil {
		if e.deadLetters() == search.LettersUnknown && !e.dead.Cursor {
			if err := e.keepConfirmed(ctx); err != nil {
				return err
			}
		}
		if e.deadLetters() != search.LettersStay {
			return nil
		}
		time.Sleep(roomEvery)
	}
	return nil
}

// read searches the window: first the work queue, then the dead letters, so that it does not
// miss a message that moves meanwhile.
func (u *slotSearch) read(ctx context.Context) error {
	e := u.e
	u.early = u.isEarly()
	named := e.namedIn(u.window, u.rest)
	u.assignFirst(named, nil)
	noted := map[search.Identity]search.CachedMessage{} // what was seen on the work queue before
	began := time.Now()
	if err := e.waitingIn(ctx, u.window, func(m *link.Message) { u.present(m, began) }, func(m search.CachedMessage) {
		if slot, _ := u.slotOf(e, m.Message(), u.known); slot != nil {
			noted[m.Identity] = m
		}
	}); err != nil {
		return err
	}
	e.identify(named...)
	if u.early = u.isEarly(); u.early {
		if err := u.confirmCached(ctx, noted); err != nil {
			return err
		}
		if u.early = u.isEarly(); u.early {
			return nil
		}
	}
	if _, err := e.expireUnseen(ctx, u.slots); err != nil {
		return err
	}
	nudged := e.deadLetterSearchFor(u.rest)
	u.assignFirst(nudged.wants, e.notNotified)
	recognized := false
	if err := e.dead.Between(ctx, u.from, u.until, func(m *link.Message) {
		at := search.IdentityOf(m)
		if _, seen := noted[at]; seen && !recognized && !e.dead.Restored {
			recognized = true
			e.w.states.update(e.key, func(f *entityState) { f.deadLetters.Recognize() })
		}
		delete(noted, at)
		u.deadLettered(ctx, m)
	}); err != nil {
		return err
	}
	if u.err != nil {
		return u.err
	}
	if err := e.tookDeadLetters(ctx, nudged, func(n *search.Want) bool { return n.Found != nil || n.Number == 0 && u.contains(n) }); err != nil {
		return err
	}
	return u.readCached(ctx, noted)
}

// isEarly reports whether no message of the window can be overdue yet. What has been searched for
// before and was gone then was received in time.
func (u *slotSearch) isEarly() bool {
	now, known := u.e.w.clock.NotAfter()
	return known && now.Before(u.slots[0].slot.SlotStart())
}

// namedIn prepares the search for messages that are known by message-id alone and may lie in
// the window.
func (e *entity) namedIn(w *window, watches []*watch) (named []*search.Want) {
	for _, wt := range watches {
		if wt.state == stateMissed || wt.want.Number != 0 || wt.standsForMany() {
			continue
		}
		if n := e.wantOf(wt); !n.Until.Before(w.from) && !n.From.After(w.until) {
			named = append(named, n)
		}
	}
	return named
}

// contains reports whether the window of n lies within w.
func (w *window) contains(n *search.Want) bool {
	return !n.From.Before(w.from) && !n.Until.After(w.until)
}

// dropFound ends the watches of a search that failed and is repeated.
func (e *entity) dropFound(ctx context.Context, found []*watch) {
	for _, wt := range found {
		wt.companion.Done(ctx, nil)
	}
}

// windowsOf returns the windows of slots. Neighbours share one.
func windowsOf(slots []*watch) []window {
	var all []window
	for _, wt := range slots {
		c := wt.slot
		for _, life := range c.Lives {
			all = append(all, window{c.SlotStart().Add(-life), c.SlotEnd.Add(-life), []*watch{wt}})
		}
		for _, span := range c.Spans {
			all = append(all, window{c.SlotStart().Add(-span.Longest), c.SlotEnd.Add(-span.Shortest), []*watch{wt}})
		}
	}
	slices.SortFunc(all, func(a, b window) int { return a.from.Compare(b.from) })
	merged := all[:1]
	for _, w := range all[1:] {
		last := &merged[len(merged)-1]
		if w.from.After(last.until.Add(search.StampPrecision)) {
			merged = append(merged, w)
			continue
		}
		if w.until.After(last.until) {
			last.until = w.until
		}
		last.slots = append(last.slots, w.slots...)
	}
	for _, w := range merged {
		slices.SortFunc(w.slots, func(a, b *watch) int { return a.slot.SlotEnd.Compare(b.slot.SlotEnd) })
	}
	return merged
}

// slotOf returns the watch over the slot of m, and the time to live that puts it there; nil if
// m belongs to none of w, or has a watch.
func (w *window) slotOf(e *entity, m *link.Message, known map[search.Identity]bool) (*watch, time.Duration) {
	if known[search.IdentityOf(m)] {
		return nil, 0
	}
	return w.slotFor(m, e.settings.Settings)
}

// slotFor is slotOf whether or not m has a watch. A slot stands for the times to live that were
// stated when it was written, so today's default is only one of those that m may have had.
func (w *window) slotFor(m *link.Message, s Settings) (*watch, time.Duration) {
	lives := [...]time.Duration{m.TimeToLive, duration.Shorter(m.TimeToLive, s.DefaultMessageTimeToLive)}
	for _, life := range lives {
		if life == 0 {
			continue
		}
		if wt := w.slotEndingAt(m.EnqueuedTime.Add(life), func(c *scheduler.Companion) bool { return c.StandsFor(life) }); wt != nil {
			return wt, life
		}
	}
	if m.TimeToLive > 0 || !m.EnqueuedTime.Before(s.DefaultSince) {
		return nil, 0
	}
	// It has the default of its time. Only the slot knows it.
	for _, wt := range w.slots {
		for _, life := range wt.slot.Defaults {
			if end := m.EnqueuedTime.Add(life); end.After(wt.slot.SlotStart()) && !end.After(wt.slot.SlotEnd) {
				return wt, life
			}
		}
	}
	return nil, 0
}

// slotEndingAt returns the watch over a slot that contains t and that will accepts, or nil.
func (w *window) slotEndingAt(t time.Time, will func(*scheduler.Companion) bool) *watch {
	// Stamps are cut to whole milliseconds, so this message may belong to the previous slot, which
	// has its own check.
	i, _ := slices.BinarySearchFunc(w.slots, t, func(wt *watch, t time.Time) int { return wt.slot.SlotEnd.Compare(t) })
	for ; i < len(w.slots); i++ {
		switch slot := w.slots[i].slot; {
		case !t.After(slot.SlotStart()):
			return nil
		case will(slot):
			return w.slots[i]
		}
	}
	return nil
}

// learnID takes the message-id from m, the message of wt. The range cache has none.
func (wt *watch) learnID(m *link.Message) {
	if wt.ref.MessageID == "" && wt.ref.Once {
		wt.ref.MessageID, wt.ref.SessionID = m.MessageID, m.SessionID
	}
}

// watchOver makes a watch over m, which belongs to the slot of wt with that time to live.
func (wt *watch) watchOver(m *link.Message, life time.Duration, known map[search.Identity]bool) *watch {
	known[search.IdentityOf(m)] = true
	wt.companion.Add(1) // its companion is completed when the message is seen to
	stated := "ttl"
	if m.TimeToLive == 0 {
		stated = "default"
	}
	return &watch{
		ref: scheduler.Reference{
			MessageID: m.MessageID, Sent: m.EnqueuedTime, From: m.EnqueuedTime, Until: m.EnqueuedTime,
			Deadline: m.EnqueuedTime.Add(life), Within: life, Stated: stated, Once: true,
		},
		companion: wt.companion, next: wt.next, deadLetterSought: true, want: search.Want{Identity: search.IdentityOf(m)},
	}
}
