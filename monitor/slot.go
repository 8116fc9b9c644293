// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/monitor/nudge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// errNoSlots: the scheduler writes no slot companions for such an entity.
var errNoSlots = errors.New("slot companions need an entity with ordered sequence numbers, so neither a topic nor a partitioned entity")

// searchSlots replaces the watches over slots by watches over the messages in their windows:
// those on the work queue, and dead letters that nobody has been notified of. A message that is
// found nowhere was received in time.
func (e *entity) searchSlots(ctx context.Context, due []*watch) ([]*watch, error) {
	slots := filter(due, func(wt *watch) bool { return wt.slot != nil })
	if len(slots) == 0 {
		return due, nil
	}
	rest := filter(due, func(wt *watch) bool { return wt.slot == nil })
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
	all, watches := slotsOf(slots), map[*scheduler.Companion]*watch{}
	windows := judge.WindowsOf(all...)
	for _, wt := range slots {
		watches[wt.slot] = wt
	}
	var found []*watch
	for i := range windows {
		u := slotSearch{Window: &windows[i], slots: watches, e: e, rest: rest, known: known}
		err := e.awaitRoom(ctx)
		if err == nil {
			err = u.read(ctx)
		}
		found = append(found, u.found...)
		if err != nil {
			e.dropFound(ctx, found)
			return due, err
		}
	}
	e.slots.Remove(all...)
	e.nudger.Retry()
	for _, w := range windows {
		e.ranges.Clear(windows[0].TimeRange().From, w.Due(e.settings.Settings), func(m *search.CachedMessage) bool {
			if !w.TimeRange().Holds(m.Enqueued) {
				return false
			}
			slot, _ := w.SlotOf(m.Message(), e.settings.Settings)
			return slot != nil
		})
	}
	for _, wt := range slots {
		wt.companion.Done(ctx, nil)
	}
	return append(rest, found...), nil
}

// A slotSearch finds the messages of the slots of one window. From the same pages it takes the
// messages that other watches name, since such a message may belong to a slot as well and would
// be searched for again.
type slotSearch struct {
	*judge.Window
	slots map[*scheduler.Companion]*watch
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
	if slot, life := u.slotOf(m); slot != nil {
		wt := slot.watchOver(m, life, u.known)
		wt.deadLetterSought = !u.early
		if u.e.needsProof() { // or dead letters stay, and are the evidence
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
	if slot, life := u.slotOf(m); slot != nil && expired(m) && !e.w.notified.IsFinal(e.eventID(m.SequenceNumber, m.EnqueuedTime)) {
		wt := slot.watchOver(m, life, u.known)
		wt.expired(e.missed(wt, m))
		if (len(u.found)+e.notifiedAtOnce)%manyMin == manyMin-1 {
			e.noteOrder(nudge.ManyMissed) // a long search must not outlive it
		}
		u.handOn(ctx, wt)
	}
}

// handOn collects the watch over a missed deadline, or notifies of it where many are collected.
func (u *slotSearch) handOn(ctx context.Context, wt *watch) {
	if len(u.found) < maxCollected {
		u.found = append(u.found, wt)
		return
	}
	u.e.notifiedAtOnce++
	u.e.w.notify(ctx, u.e.name, wt)
	u.err = errors.Join(u.err, u.e.awaitRoom(ctx))
}

const (
	// maxCollected is how many messages a search keeps until it is over.
	maxCollected = 20_000
	// roomEvery is how often a search asks whether the sinks have caught up.
	roomEvery = 20 * time.Millisecond
)

// awaitRoom waits while the sinks are behind, for as long as dead letters stay.
func (e *entity) awaitRoom(ctx context.Context) error {
	for e.w.notifier.IsBehind() && ctx.Err() == nil {
		if !e.dead.Cursor {
			if err := e.keepConfirmed(ctx); err != nil {
				return err
			}
		}
		if e.deadLetters() != search.LettersStay {
			return nil
		}
		e.noteOrder(nudge.ManyMissed)
		time.Sleep(roomEvery)
	}
	return nil
}

// read searches the window: first the work queue, then the dead letters, so that it does not
// miss a message that moves meanwhile.
func (u *slotSearch) read(ctx context.Context) error {
	e := u.e
	u.early = u.isEarly()
	named := e.namedIn(u.From, u.Until, u.rest)
	u.assignFirst(named, nil)
	noted := map[search.Identity]search.CachedMessage{} // what was seen on the work queue before
	began := time.Now()
	if err := e.waitingIn(ctx, u.Window, func(m *link.Message) { u.present(m, began) }, func(m *search.CachedMessage) {
		if slot, _ := u.slotOf(m.Message()); slot != nil {
			noted[m.Identity] = *m
		}
	}); err != nil {
		return err
	}
	e.identify(named...)
	if u.early = u.isEarly(); u.early {
		err := u.confirmCached(ctx, noted)
		if u.early = u.isEarly(); err != nil || u.early {
			return err
		}
	}
	if _, err := e.expireUnseen(ctx, slices.Collect(maps.Values(u.slots))); err != nil {
		return err
	}
	all, err := u.proveCached(ctx, noted)
	if err = errors.Join(err, u.err); err != nil {
		return err
	}
	if all {
		return u.readCached(ctx, noted)
	}
	nudged := e.deadLetterSearchFor(u.rest)
	u.assignFirst(nudged.wants, e.notNotified)
	err = e.dead.Between(ctx, u.From, u.Until, func(m *link.Message) {
		at := search.IdentityOf(m)
		if _, seen := noted[at]; seen && !e.dead.Restored && e.lettersMayDiffer() {
			e.sawDeadLetter(m, true)
		}
		delete(noted, at)
		u.deadLettered(ctx, m)
	})
	if err = errors.Join(err, u.err); err != nil {
		return err
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
	return known && now.Before(u.Begins())
}

// namedIn prepares the search for messages that are known by message-id alone and may lie in
// the window.
func (e *entity) namedIn(from, until time.Time, watches []*watch) (named []*search.Want) {
	for _, wt := range watches {
		if wt.state == stateMissed || wt.want.Number != 0 || wt.slot != nil || wt.standsForMany() {
			continue
		}
		if n := e.wantOf(wt); !n.Until.Before(from) && !n.From.After(until) {
			named = append(named, n)
		}
	}
	return named
}

// contains reports whether the window of n lies within that of the slots.
func (u *slotSearch) contains(n *search.Want) bool {
	return !n.From.Before(u.From) && !n.Until.After(u.Until)
}

// dropFound ends the watches of a search that failed and is repeated.
func (e *entity) dropFound(ctx context.Context, found []*watch) {
	for _, wt := range found {
		wt.companion.Done(ctx, nil)
	}
}

// slotOf returns the watch over the slot of m, and the time to live that puts it there; nil if m
// belongs to none of the window, or has a watch.
func (u *slotSearch) slotOf(m *link.Message) (*watch, time.Duration) {
	if u.known[search.IdentityOf(m)] {
		return nil, 0
	}
	slot, life := u.SlotOf(m, u.e.settings.Settings)
	return u.slots[slot], life
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
