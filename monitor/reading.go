// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

const (
	// backlogSpan is the least length of a window that goes through the backlog: the windows of slots
	// over one time to live are shorter, and each is read once. And it is how much more than a window
	// is read at once: its messages were seen before they expire, also where the next one is late.
	backlogSpan = time.Second
	// mergeGap is how far apart windows may lie to be read as one: at 10,000 messages a second, a
	// page has those of so long a time.
	mergeGap = 25 * time.Millisecond
)

// A reading reads the windows of rules once, and tests each message against the rules that cover
// it.
type reading struct {
	e         *entity
	slots     []*scheduler.Companion // in the order of their ends
	bySlot    map[*scheduler.Companion]*rule
	byID      map[string][]*rule
	withoutID []*rule
	now       time.Time                 // by the clock of the broker, and not ahead of it
	found     map[*rule][]*link.Message // what fits the rules over references
	late      map[*rule]bool            // some of its messages may have expired before they were read
	few       []*rule                   // over references, of messages far apart in their windows
}

func newReading(e *entity, rules []*rule) *reading {
	r := &reading{
		e:      e,
		bySlot: map[*scheduler.Companion]*rule{},
		byID:   map[string][]*rule{},
		found:  map[*rule][]*link.Message{},
		late:   map[*rule]bool{},
	}
	for _, rl := range rules {
		switch {
		case rl.slot != nil:
			r.slots = append(r.slots, rl.slot)
			r.bySlot[rl.slot] = rl
		case rl.ref.WithoutID():
			r.withoutID = append(r.withoutID, rl)
		default:
			r.byID[rl.ref.MessageID] = append(r.byID[rl.ref.MessageID], rl)
		}
	}
	slices.SortFunc(r.slots, func(a, b *scheduler.Companion) int { return a.SlotEnd.Compare(b.SlotEnd) })
	return r
}

// A window is a span of enqueued-times, both ends included, and the rules over messages in it.
type window struct {
	from, until time.Time
	rules       []*rule
}

// run reads the work queue, then the dead letters of the rules whose deadlines may have passed by
// then, so that it does not miss a message that moves meanwhile.
func (r *reading) run(ctx context.Context) error {
	r.now = r.e.w.clock.Now().Add(-r.e.w.clock.Grain())
	unread, unseen, err := r.readBacklog(ctx)
	if err != nil {
		return err
	}
	if err := r.readWork(ctx, unread); err != nil {
		return err
	}
	if err := r.readFew(ctx); err != nil {
		return err
	}
	missing := slices.DeleteFunc(r.named(), func(rl *rule) bool { return rl.matched || len(r.found[rl]) > 0 })
	if err := r.readWork(ctx, windowsOf(missing, search.WindowMargin)); err != nil {
		return err
	}
	for rl, found := range r.found {
		r.watchFound(ctx, rl, found)
	}
	return r.readLetters(ctx, slices.Concat(unseen, windowsOf(r.named(), search.WindowMargin)))
}

// named returns the rules over references.
func (r *reading) named() []*rule {
	named := slices.Clone(r.withoutID)
	for _, same := range r.byID {
		named = append(named, same...)
	}
	return named
}

// readWork reads windows of the work queue.
func (r *reading) readWork(ctx context.Context, windows []window) error {
	for _, in := range merged(windows) {
		if err := r.e.work.Between(ctx, in.from, in.until, func(m *link.Message) { r.meet(ctx, m) }); err != nil {
			return err
		}
	}
	return nil
}

// windowsOf returns the windows of rules, longer by a margin at both ends: a message mostly stands
// in that of its send, but the clocks of broker nodes may differ.
func windowsOf(rules []*rule, margin time.Duration) []window {
	all := make([]window, len(rules))
	for i, rl := range rules {
		all[i].from, all[i].until = rl.window(margin)
		all[i].rules = []*rule{rl}
	}
	return all
}

// merged joins windows that overlap, or lie so close together that they share a page.
func merged(windows []window) []window {
	slices.SortFunc(windows, func(a, b window) int { return a.from.Compare(b.from) })
	joined := windows[:0]
	for _, in := range windows {
		if n := len(joined); n > 0 && !in.from.After(joined[n-1].until.Add(mergeGap)) {
			last := &joined[n-1]
			last.until = duration.Later(last.until, in.until)
			last.rules = append(last.rules, in.rules...)
			continue
		}
		joined = append(joined, in)
	}
	return joined
}

// readBacklog takes messages from the backlog, as far as windows are long. It returns the windows,
// or parts of windows, that the backlog does not cover, which are still to be read. It also returns
// those that it did not cover before the first deadline in them: a message that has expired there
// may never have been seen. A backlog goes by today's default, so it has no messages from before
// that.
func (r *reading) readBacklog(ctx context.Context) (unread, unseen []window, err error) {
	e := r.e
	var byLife, others []*rule
	for _, rl := range r.named() {
		if rl.isByLife(&e.settings) {
			byLife = append(byLife, rl)
		} else {
			others = append(others, rl)
		}
	}
	unread = windowsOf(others, search.StampPrecision)
	windows := windowsOf(byLife, search.StampPrecision)
	for _, slot := range r.slots {
		for _, w := range judge.WindowsOf(slot) {
			windows = append(windows, window{w.From, w.Until, []*rule{r.bySlot[slot]}})
		}
	}
	final := e.w.clock.Now().Add(-search.SettledAge)
	for _, w := range merged(windows) {
		isLong := w.until.Sub(w.from) >= backlogSpan && final.After(w.from) && !w.from.IsZero()
		if !isLong || e.settings.mayPrecedeDefault(w.from) || e.work.Unordered {
			unread, unseen = append(unread, w), append(unseen, w)
			continue
		}
		isSparse, err := r.extendBacklog(ctx, w, final)
		if err != nil {
			return nil, nil, err
		}
		if isSparse {
			r.few, unseen = append(r.few, w.rules...), append(unseen, w)
			continue
		}
		if covered := e.backlog.Covered(w.from); !covered.After(w.until) {
			unread = append(unread, window{covered, w.until, w.rules})
		}
		if seen := e.backlog.CoveredBefore(w.from, w.earliest(&e.settings)); !seen.After(w.until) {
			unseen = append(unseen, window{seen, w.until, w.rules})
		}
	}
	r.takeBacklog(ctx)
	return unread, unseen, nil
}

// extendBacklog has the backlog cover a window, as far as that is final, and some time more. If the
// window is sparse, it does nothing.
func (r *reading) extendBacklog(ctx context.Context, w window, final time.Time) (isSparse bool, err error) {
	e := r.e
	if e.backlog.Covered(w.from).After(w.until) {
		return false, nil
	}
	if isSparse, err := r.isSparse(ctx, w, final); isSparse || err != nil {
		return isSparse, err
	}
	need, most := duration.Earlier(w.until.Add(search.StampPrecision), final), duration.Earlier(w.until.Add(backlogSpan), final)
	if err := e.backlog.Extend(ctx, e.work, w.from, need, most, e.settings.lifeOf); err != nil {
		return false, err
	}
	if latest, known := e.w.clock.NotAfter(); known {
		e.backlog.Note(latest)
	}
	return false, nil
}

// isSparse reports whether a window is cheaper to read message by message than as a whole. Where a
// queue fills fast, the seconds that a send may take hold a great many messages.
func (r *reading) isSparse(ctx context.Context, w window, final time.Time) (bool, error) {
	if slices.ContainsFunc(w.rules, func(rl *rule) bool { return rl.slot != nil }) {
		return false, nil
	}
	span, err := r.e.work.Span(ctx, w.from, duration.Earlier(w.until, final))
	return span > int64(len(w.rules))*search.SeekPeeks*search.PageSize, err
}

// readFew reads the work queue for the few rules, from the beginning of the window of each until it
// has found a message.
func (r *reading) readFew(ctx context.Context) error {
	from := func(rl *rule) time.Time { return rl.ref.From.Add(-search.StampPrecision) }
	slices.SortFunc(r.few, func(a, b *rule) int { return from(a).Compare(from(b)) })
	for len(r.few) > 0 {
		start, isEnd := from(r.few[0]), true
		err := r.e.work.Read(ctx, start, search.Forever, func(page []*link.Message) (more bool) {
			for _, m := range page {
				r.meet(ctx, m)
			}
			if r.e.work.Unordered {
				return true
			}
			reached := page[len(page)-1].EnqueuedTime
			r.few = slices.DeleteFunc(r.few, func(rl *rule) bool { return r.hasFound(rl) || reached.After(rl.ref.Until) })
			isFar := len(r.few) > 0 && from(r.few[0]).After(start) && from(r.few[0]).After(reached)
			isEnd = len(r.few) > 0 && !isFar
			return isEnd
		})
		if err != nil || isEnd {
			return err
		}
	}
	return nil
}

// hasFound reports whether as many messages were found with the message-id of rl as there are rules
// with it. One that is watched already is of another rule: its id was sent twice at a time.
func (r *reading) hasFound(rl *rule) bool {
	from, until := rl.window(search.StampPrecision)
	found := 0
	for _, m := range r.found[rl] {
		isInWindow := !m.EnqueuedTime.Before(from) && !m.EnqueuedTime.After(until)
		if isInWindow && rl.agrees(m, r.e.settings.Settings) && r.e.watches[search.IdentityOf(m)] == nil {
			found++
		}
	}
	return rl.matched || found >= len(r.byID[rl.ref.MessageID])
}

// earliest returns an instant that no deadline of the rules of w precedes; zero: unknown.
func (w *window) earliest(s *entitySettings) time.Time {
	first := search.Forever
	for _, rl := range w.rules {
		first = duration.Earlier(first, rl.earliest(s))
	}
	return first
}

// takeBacklog watches the messages of the backlog that slots stand for, or that references name
// whose deadline is the end of a time to live.
func (r *reading) takeBacklog(ctx context.Context) {
	e, names := r.e, map[uint64][]*rule{}
	from, until := search.Forever, time.Time{}
	for _, slot := range r.slots {
		from, until = duration.Earlier(from, slot.SlotStart()), duration.Later(until, slot.SlotEnd)
	}
	for id, same := range r.byID {
		for _, rl := range same {
			if rl.isByLife(&e.settings) {
				name := search.NameOf(id, rl.ref.SessionID)
				names[name] = append(names[name], rl)
				from = duration.Earlier(from, rl.ref.DeadlineAt(rl.ref.From).Add(-search.WindowMargin))
				until = duration.Later(until, rl.ref.DeadlineAt(rl.ref.Until).Add(search.WindowMargin))
			}
		}
	}
	e.backlog.Take(from, until, func(w search.Waiting) (taken bool) {
		for _, rl := range names[w.Name] {
			first, last := rl.window(search.WindowMargin)
			isInWindow := !w.EnqueuedTime().Before(first) && !w.EnqueuedTime().After(last)
			if isInWindow && rl.mayBe(w.Number) && (w.Life-rl.ref.Within).Abs() <= search.StampPrecision {
				taken = r.watchIdentity(ctx, rl, w.Identity, w.Life) || taken
			}
		}
		if slot, life := judge.SlotOf(r.slots, w.EnqueuedTime(), w.Life, e.settings.Settings); slot != nil {
			taken = r.watchIdentity(ctx, r.bySlot[slot], w.Identity, life) || taken
		}
		return taken
	})
}

// meet takes a message of the work queue.
func (r *reading) meet(ctx context.Context, m *link.Message) {
	for _, rl := range r.fitting(m) {
		r.found[rl] = append(r.found[rl], m)
	}
	if search.Pending(m) {
		return
	}
	if slot, life := judge.SlotOf(r.slots, m.EnqueuedTime, m.TimeToLive, r.e.settings.Settings); slot != nil {
		r.watchIdentity(ctx, r.bySlot[slot], search.IdentityOf(m), life)
	}
}

// fitting returns the rules over references that m fits.
func (r *reading) fitting(m *link.Message) (fitting []*rule) {
	for _, rules := range [][]*rule{r.byID[m.MessageID], r.withoutID} {
		for _, rl := range rules {
			if rl.fits(m, r.e.settings.Settings) {
				fitting = append(fitting, rl)
			}
		}
	}
	return fitting
}

// watchFound watches the messages that fit a rule over a reference. Where its message-id repeats,
// those come first that were enqueued during its send, and have the deadline that it states: the
// others have companions of their own. The copies of a topic may live longer than it states, since
// that is limited to the shortest time to live of all subscriptions.
func (r *reading) watchFound(ctx context.Context, rl *rule, found []*link.Message) {
	from, until := rl.window(search.StampPrecision)
	found = preferred(found, func(m *link.Message) bool { return !m.EnqueuedTime.Before(from) && !m.EnqueuedTime.After(until) })
	if !r.e.settings.subscription && !r.e.settings.mayPrecedeDefault(rl.ref.From) {
		found = preferred(found, func(m *link.Message) bool { return rl.agrees(m, r.e.settings.Settings) })
	}
	for _, m := range found {
		r.watchMessage(ctx, rl, m, r.now)
	}
}

// preferred returns the messages that is accepts, or all if it accepts none.
func preferred(messages []*link.Message, is func(*link.Message) bool) (some []*link.Message) {
	for _, m := range messages {
		if is(m) {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		return messages
	}
	return some
}

// readLetters reads the dead letters in the windows of rules whose messages may have expired
// before they were read on the work queue.
func (r *reading) readLetters(ctx context.Context, windows []window) error {
	e := r.e
	latest, known := e.w.clock.NotAfter()
	windows = slices.DeleteFunc(windows, func(in window) bool {
		isLate := false
		for _, rl := range in.rules {
			earliest := rl.earliest(&e.settings)
			if !known || earliest.IsZero() || !latest.Before(earliest) || e.settings.forwardTo != "" {
				r.late[rl], isLate = true, true
			}
		}
		return !isLate
	})
	for _, in := range merged(windows) {
		if err := e.letters.view.Between(ctx, in.from, in.until, func(m *link.Message) { r.meetLetter(ctx, m) }); err != nil {
			return err
		}
	}
	if len(r.late) == 0 || e.settings.forwardDead == "" {
		return nil
	}
	return r.meetForwarded(ctx)
}

// meetLetter takes a dead letter. One that was not notified of is watched until it is: this
// companion may be all that is left of it.
func (r *reading) meetLetter(ctx context.Context, m *link.Message) {
	e := r.e
	if !e.settings.isUnreceived(m) || e.w.notified.IsFinal(eventID(e.name, search.IdentityOf(m))) {
		return
	}
	for _, rl := range r.fitting(m) {
		r.watchLetter(ctx, rl, m, judge.DeadlineOf(&rl.ref, m, e.settings.Settings))
	}
	if slot, life := judge.SlotOf(r.slots, m.EnqueuedTime, m.TimeToLive, e.settings.Settings); slot != nil {
		r.watchLetter(ctx, r.bySlot[slot], m, m.EnqueuedTime.Add(life))
	}
}

// watchIdentity watches a message of which the number, the stamp and the time to live are known. It
// reports whether the message is in hand.
func (r *reading) watchIdentity(ctx context.Context, rl *rule, identity search.Identity, life time.Duration) bool {
	deadline := identity.EnqueuedTime().Add(life)
	if r.e.watches[identity] == nil && !isNear(&r.e.w.clock, deadline) {
		rl.rearm(deadline)
		return false
	}
	if wt, isNew := r.hold(rl, identity, deadline); isNew {
		r.e.postpone(ctx, wt)
	}
	return true
}

// watchMessage watches a message that a reference names, at the instant now of the clock of the
// broker. Where nothing is due soon, its companion is rewritten instead.
func (r *reading) watchMessage(ctx context.Context, rl *rule, m *link.Message, now time.Time) {
	wt, isNew := r.hold(rl, search.IdentityOf(m), time.Time{})
	if !isNew {
		return
	}
	wt.seen, wt.seenAt, wt.there = m, time.Now(), true
	wt.learn(m)
	wt.judgement = wt.judge(&r.e.settings, now)
	wt.setDeadline(r.e.settings.Settings)
	next := wt.nextReminder(&r.e.settings)
	if next.IsZero() || !search.Pending(m) && isNear(&r.e.w.clock, next) {
		r.e.postpone(ctx, wt)
		return
	}
	r.e.end(wt)
	rl.companion.Done(ctx, nil)
	rl.rearm(next)
}

// watchLetter watches a message that has expired, until it is notified of.
func (r *reading) watchLetter(ctx context.Context, rl *rule, letter *link.Message, deadline time.Time) {
	wt, _ := r.hold(rl, search.IdentityOf(letter), deadline)
	wt.expire(r.e.missed(wt, letter))
	r.e.conclude(ctx, wt)
}

// hold takes the watch of a message in hand, for the companion of rl. It makes one if there is
// none.
func (r *reading) hold(rl *rule, identity search.Identity, deadline time.Time) (wt *watch, isNew bool) {
	rl.match(identity)
	wt = r.e.watches[identity]
	if wt == nil {
		wt, isNew = newWatch(rl, identity, deadline), true
		r.e.watches[identity] = wt
	}
	wt.attach(rl.companion)
	return wt, isNew
}
