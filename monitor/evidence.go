// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/nudge"
	"overdue/monitor/search"
)

// A message that is gone from the work queue was received, or it has expired. Its dead letter is
// the proof of the second. But a consumer that empties the dead-letter queue is a normal way to use
// Service Bus, and takes the proof away. And where many deadlines are missed, dead letters are too
// many to read. Then the verdict rests on what the monitor saw:
//
//	dead letter read                                              ─▶ missed, evidence "deadLetter"
//	it was available, and nobody received until its deadline      ─▶ missed, evidence "expired" (package nudge)
//	overdue right before our nudge, gone right after it
//	  ├─ dead letters stay on this entity                         ─▶ met: it was settled in that instant
//	  ├─ a consumer held it                                       ─▶ no evidence, as below
//	  └─ otherwise                                                ─▶ missed, evidence "expired"
//	gone, and nobody knows how
//	  ├─ about its deadline                                       ─▶ search once more, a dead letter may come late
//	  ├─ dead letters stay on this entity                         ─▶ met
//	  └─ otherwise                                                ─▶ unknown

// evidence is what shows why a message is gone.
type evidence struct {
	present      *link.Message // as it last was on the work queue; nil: it was not seen there
	presentAt    time.Time     // by our clock: it was there
	mayExpireNow bool          // overdue immediately before our nudge, and probably not locked
	expired      *link.Message // such a message, gone after the nudge
	atNudge      *link.Message // it was overdue right before another message's nudge, too
	none         bool          // gone, and nobody knows how
	shownExpired bool          // a peek has shown it after its time to live
	awaited      int           // how often its dead letter was waited for, since it is gone
}

// Evidence of a missed deadline, as events name it.
const (
	evidenceDeadLetter = "deadLetter" // its dead letter was read, or this worker dead-lettered it
	evidenceExpired    = "expired"    // a nudge has expired it, as what was seen around it shows
)

// reasonDropped replaces the dead-letter reason in events about messages that the broker dropped.
const reasonDropped = "Dropped"

const (
	// confirmEvery is how often witnesses are read while nothing contradicts them.
	confirmEvery = time.Second
	// confirmWithin is how long after a missed deadline a check that has missed none reads them.
	confirmWithin = 10 * time.Second
)

// deadLetters returns whether dead letters stay on e, as far as that is known.
func (e *entity) deadLetters() search.LetterState {
	return e.w.states.get(e.key).deadLetters.Current(time.Now())
}

// lettersMayDiffer reports whether no dead letter of e was recognized yet by the number and the
// stamp of its message.
func (e *entity) lettersMayDiffer() bool {
	return !e.w.states.get(e.key).deadLetters.Recognized()
}

// sawDeadLetter records that the dead letter m was just read. recognized: it has the number and the
// stamp under which its message was seen.
func (e *entity) sawDeadLetter(m *link.Message, recognized bool) {
	e.w.states.update(e.key, func(f *entityState) {
		if recognized {
			f.deadLetters.Recognize()
		}
		f.deadLetters.Add(search.IdentityOf(m), time.Now())
	})
}

// sawNewLetters keeps a page of dead letters that was read right behind a nudge. Where many
// deadlines are missed, no others are read.
func (e *entity) sawNewLetters(page []*link.Message) {
	e.kept.Add(page)
	recognized := e.lettersMayDiffer() && slices.ContainsFunc(page, func(m *link.Message) bool { return expired(m) && e.ranges.Has(m) })
	e.w.states.update(e.key, func(f *entityState) { f.deadLetters.ObservePage(page, recognized, time.Now()) })
}

// confirmDeadLetters reads the witnesses again and returns the state that follows. Without any,
// nothing speaks for letters that stay.
func (e *entity) confirmDeadLetters(ctx context.Context) (search.LetterState, error) {
	known := e.w.states.get(e.key).deadLetters
	wants := known.Witnesses(time.Now())
	switch {
	case len(wants) == 0 && known.Current(time.Now()) == search.LettersTaken:
		return search.LettersTaken, nil
	case len(wants) == 0:
		return search.LettersUnknown, nil
	}
	// A kept letter proves nothing about the queue.
	if err := e.dead.WithoutKept(func() error { return e.dead.FindNumbered(ctx, wants, nil) }); err != nil {
		return search.LettersUnknown, err
	}
	return e.observeWitnesses(wants), nil
}

// observeWitnesses notes which witnesses were found, and returns the state that follows.
func (e *entity) observeWitnesses(wants []*search.Want) search.LetterState {
	known := e.w.states.get(e.key).deadLetters
	before := known.Current(time.Now())
	kept := 0
	for _, w := range wants {
		if w.Found != nil {
			kept++
		}
	}
	e.w.states.update(e.key, func(f *entityState) {
		f.deadLetters.Observe(time.Now(), kept, len(wants)-kept)
		known = f.deadLetters
	})
	after := known.Current(time.Now())
	if before == search.LettersStay && after == search.LettersTaken {
		e.noteOrder(nudge.LettersTaken)
	}
	if before != after && after == search.LettersTaken {
		e.log.Info("a consumer empties the dead-letter queue: missed deadlines are recognized at the nudge")
	}
	return after
}

// keepConfirmed reads the witnesses again when that is due, so that the state does not lapse while
// deadlines are being missed.
func (e *entity) keepConfirmed(ctx context.Context) error {
	if len(e.dueWitnesses()) == 0 {
		return nil
	}
	_, err := e.confirmDeadLetters(ctx)
	return err
}

// dueWitnesses returns the witnesses if it is time to read them again.
func (e *entity) dueWitnesses() []*search.Want {
	if e.settings.forwardDead != "" || e.settings.drops {
		return nil
	}
	known := e.w.states.get(e.key).deadLetters
	if now := time.Now(); known.Current(now) != search.LettersTaken && now.Sub(known.Confirmed) >= confirmEvery {
		return known.Witnesses(now)
	}
	return nil
}

// findDeadLetters searches for dead letters. Where they stay, it also reads the witnesses when that
// is due: they mostly stand on the same page.
func (e *entity) findDeadLetters(ctx context.Context, wants []*search.Want) error {
	find := func() error { return e.dead.Find(ctx, wants, e.chooser(e.notNotified)) }
	witnesses := e.dueWitnesses()
	if e.deadLetters() != search.LettersStay || len(witnesses) == 0 {
		return find()
	}
	wants = append(witnesses, wants...)
	if err := e.dead.WithoutKept(find); err != nil {
		return err
	}
	e.observeWitnesses(witnesses)
	return nil
}

// decideUnaccounted decides about messages that are gone and in no dead-letter queue of the entity.
func (e *entity) decideUnaccounted(ctx context.Context, watches []*watch) error {
	if e.settings.forwardDead != "" {
		if err := e.findForwardedDead(ctx, watches); err != nil {
			return err
		}
		watches = unaccounted(watches)
	}
	if len(watches) == 0 {
		return nil
	}
	state, err := e.confirmDeadLetters(ctx)
	if err != nil {
		return err
	}
	if state != search.LettersStay {
		if err := e.proveExpired(ctx, watches); err != nil {
			return err
		}
	}
	taken := 0
	for _, wt := range watches {
		seen := wt.evidence.expired
		if seen != nil && e.wasSettled(wt) {
			continue // since the check began
		}
		if seen == nil || state == search.LettersStay && !e.settings.drops {
			wt.evidence.none = state != search.LettersStay
			continue
		}
		e.expiredUnread(wt, seen)
		if e.settings.drops {
			wt.missed.DeadLetterReason = reasonDropped
			continue
		}
		taken++
	}
	if taken > 0 && state == search.LettersUnknown { // nobody could read them, so nobody else shows it
		e.w.states.update(e.key, func(f *entityState) { f.deadLetters.Observe(time.Now(), 0, taken) })
	}
	return nil
}

// expiredUnread moves wt on whose message m has expired, although its dead letter was not read.
func (e *entity) expiredUnread(wt *watch, m *link.Message) {
	wt.expired(e.missed(wt, m))
	wt.missed.Evidence, wt.missed.DeadLetterReason = evidenceExpired, search.ReasonExpired
}

// proveNudged decides about nudged messages whose dead letters are too many to read.
func (e *entity) proveNudged(ctx context.Context, watches []*watch) error {
	if !e.hasMany() {
		return nil
	}
	nudged := filter(watches, func(wt *watch) bool { return wt.nudgeAwaited && wt.state != stateMissed })
	if err := e.proveExpired(ctx, nudged); err != nil {
		return err
	}
	var expired []*link.Message
	for _, wt := range nudged {
		if m := wt.evidence.expired; m != nil {
			expired = append(expired, m)
		}
	}
	cleared, err := e.isCleared(ctx, expired)
	for _, wt := range nudged {
		if m := wt.evidence.expired; m != nil && cleared && !e.wasSettled(wt) {
			e.expiredUnread(wt, m)
		}
		wt.evidence.expired = nil
	}
	return err
}

const (
	// clearedFor is how long it counts for fewer than clearedMin messages that nudges have cleared
	// all.
	clearedFor = time.Second
	clearedMin = 64
)

// isCleared reports whether nudges have cleared away all of these expired messages. If they clear
// only those before the first live one, or only some, that with the last number or the last
// deadline is still there.
func (e *entity) isCleared(ctx context.Context, expired []*link.Message) (bool, error) {
	if len(expired) == 0 || len(expired) < clearedMin && time.Since(e.clearedAt) < clearedFor {
		return true, nil
	}
	last := slices.MaxFunc(expired, func(a, b *link.Message) int { return cmp.Compare(a.SequenceNumber, b.SequenceNumber) })
	latest := slices.MaxFunc(expired, func(a, b *link.Message) int { return e.expiryOf(a).Compare(e.expiryOf(b)) })
	wants := []*search.Want{{Identity: search.IdentityOf(last)}, {Identity: search.IdentityOf(latest)}}
	if err := e.work.FindNumbered(ctx, wants, nil); err != nil {
		return false, err
	}
	e.clearedAt = time.Time{}
	if wants[0].Found != nil || wants[1].Found != nil {
		return false, nil
	}
	e.clearedAt = time.Now()
	return true, nil
}

// proveExpired finds messages that were available on the work queue before their deadlines, while
// nobody received until then: an attempt has not left them in place. And it gives up what a nudge
// seems to have expired, but a consumer held.
func (e *entity) proveExpired(ctx context.Context, watches []*watch) error {
	var last time.Time
	seen := filter(watches, func(wt *watch) bool {
		at := e.expiryOf(wt.evidence.present)
		last = duration.Later(last, at)
		return wt.evidence.expired != nil || !at.IsZero()
	})
	if len(seen) == 0 {
		return nil
	}
	shown, err := e.nudger.Prove(ctx, &e.work, &e.dead, last)
	if err != nil {
		return err
	}
	for _, wt := range seen {
		switch {
		case wt.evidence.expired != nil && shown.Held(wt.want.Number, wt.evidence.presentAt):
			wt.evidence.expired = nil
		case wt.evidence.expired == nil && !wt.attempt.made() && shown.Proves(wt.evidence.present, wt.evidence.presentAt, e.expiryOf(wt.evidence.present)):
			wt.evidence.expired = wt.evidence.present
		}
	}
	return nil
}

// letterWait is how long a dead letter may take until it can be found. Service Bus clears away
// expired messages asynchronously ("Message browsing"), and does not say how long that takes.
const letterWait = 750 * time.Millisecond

// mayHaveLetter reports whether a message that was on the work queue at its deadline, as far as
// anybody knows, may have a dead letter that cannot be found yet. Its absence counts after
// letterWait, when it is searched for once more. In an entity with sessions every message is: a
// peek without a session is empty at times (azure-sdk-for-js 12450).
func (e *entity) mayHaveLetter(wt *watch) bool {
	switch {
	case wt.evidence.awaited > 0:
		return !e.settings.drops && e.mayBeUnseen(wt)
	case e.settings.sessions:
		return true
	case e.settings.drops:
		return false
	}
	latest, known := e.w.clock.NotAfter()
	due := duration.Later(wt.due(), wt.seenAt)
	return !known || !due.After(latest) || !e.settings.known || e.hadOtherDefault(wt) // or it was received in time
}

// noteLateLetter records that the dead letter of wt was found only at the second search. From then
// on the check comes first: behind a nudge nothing can be read.
func (e *entity) noteLateLetter(wt *watch) {
	if wt.evidence.awaited == 0 || wt.missed.Evidence != evidenceDeadLetter || e.w.states.get(e.key).lateLetters {
		return
	}
	e.w.states.update(e.key, func(f *entityState) { f.lateLetters = true })
	e.log.Info("dead letters can be found late only: the check comes before each nudge")
}

// expiryOf returns when the broker lets m expire; zero: never, or it is not known.
func (e *entity) expiryOf(m *link.Message) time.Time {
	if m == nil {
		return time.Time{}
	}
	life := duration.Shorter(m.TimeToLive, e.settings.DefaultMessageTimeToLive)
	if life == 0 {
		return time.Time{}
	}
	return m.EnqueuedTime.Add(life + e.w.clock.Grain())
}
