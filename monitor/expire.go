// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/monitor/judge"
	"overdue/monitor/scan"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// Strategies, as in the configuration and events. Any other value means auto: native, then scan.
// With any strategy, messages in a session are expired in their session, and deferred ones by
// number.
const (
	strategyNative   = "native"
	strategyScan     = "scan"
	strategySession  = "session"
	strategyDeferred = "deferred"
)

// expire takes overdue messages off the work queue. It escalates: nudge, check, scan, check.
// Afterwards the verdict of each watch is gone or inFlight. It sets missed for the messages
// that this worker has dead-lettered, or seen in the dead-letter queue.
func (e *entity) expire(ctx context.Context, overdue []*watch) error {
	var try, deferred, spared []*watch
	for _, wt := range overdue {
		switch {
		case !wt.mayTryExpiry(time.Now()):
			wt.see(leftInPlace)
		case e.wouldBeDropped(wt), wt.judgement.Deferred && wt.judgement.Assumed && (e.isRefuted(wt) || wt.ref.Stated == scheduler.StatedComplete):
			// An attempt counts as a delivery, and the companion states no deadline, or none that
			// holds.
			spared = append(spared, wt)
		case e.expiresSoon(wt):
			wt.see(expiresSoon)
		case wt.judgement.Deferred:
			deferred = append(deferred, wt)
		default:
			try = append(try, wt)
		}
	}
	if err := e.expireDeferred(ctx, deferred); err != nil {
		return err
	}
	if err := e.expireActive(ctx, try); err != nil {
		return err
	}
	left := present(slices.Concat(try, deferred, spared))
	quiet := len(filter(left, (*watch).harmless))
	for _, wt := range left {
		if wt.judgement.Assumed {
			if e.isRefuted(wt) && wt.ref.Stated == "default" {
				wt.judgement.Otherwise = time.Time{}
			}
			wt.judgement.Deadline = wt.judgement.Otherwise
			wt.see(foundEarly)
			continue
		}
		if wt.state == stateWaiting { // see judge.Clock.IsEarly
			e.settingsAsOf = time.Now()
			continue
		}
		wt.see(leftInPlace)
		wt.triedExpiry(time.Now(), quiet)
	}
	return nil
}

// expiryWait is how long the monitor waits for the end of a time to live rather than scan.
const expiryWait = 50 * time.Millisecond

// expiresSoon reports whether the broker can expire the message of wt in a moment. The proxy stamps
// the rest of the time to an absolute deadline as a time to live, which counts from when the broker
// enqueues the message: it ends later than the deadline, by the duration of the send. A nudge then
// disturbs no other message, as a scan before would.
func (e *entity) expiresSoon(wt *watch) bool {
	j := &wt.judgement
	return !j.Native && !j.Deferred && !j.Expiry.IsZero() && !e.settings.drops && e.settings.Strategy != strategyScan &&
		j.Expiry.Sub(e.w.clock.Now()) < expiryWait
}

// expireActive expires messages that are neither deferred nor scheduled.
func (e *entity) expireActive(ctx context.Context, try []*watch) error {
	left := try
	for _, wt := range try {
		wt.attempt.left, wt.evidence.mayExpireNow = nothing, e.settings.sessions || wt.isFree()
	}
	nudged := left
	if e.settings.Strategy == strategyScan { // which must not take what the broker may keep for longer
		nudged = filter(left, func(wt *watch) bool { return wt.judgement.Assumed })
	}
	if anyNative(nudged) {
		if err := e.wake(ctx, nudged); err != nil {
			return err
		}
		left = filter(present(left), func(wt *watch) bool { return wt.attempt.left != locked })
	}
	left = filter(left, func(wt *watch) bool { return !wt.judgement.Assumed })
	if e.settings.Strategy == strategyNative || len(left) == 0 {
		return nil
	}
	scopes := e.scopes(left)
	if err := eachScope(scopes, func(i int) error { return e.scan(ctx, scopes[i]) }); err != nil {
		return err
	}
	return e.findAgain(ctx, unaccounted(left), e.scanTakes())
}

// wake nudges where a time to live has passed, and finds out which messages are gone. One nudge
// may wake the whole entity, or only the session that it receives from. So wake nudges once,
// and then where messages are left.
func (e *entity) wake(ctx context.Context, watches []*watch) error {
	lines := e.scopes(watches)
	first := 0
	for i, l := range lines {
		if anyNative(l.watches) {
			first = i
			break
		}
	}
	lines[0], lines[first] = lines[first], lines[0]
	for _, round := range [][]receiveScope{lines[:1], lines[1:]} {
		var nudged []receiveScope
		for _, l := range round {
			if l.watches = present(l.watches); anyNative(l.watches) {
				nudged = append(nudged, l)
			}
		}
		if len(nudged) == 0 {
			continue
		}
		for some := range slices.Chunk(nudged, maxScopes) {
			if err := e.nudge(ctx, some); err != nil {
				return err
			}
		}
		left := present(watches)
		if err := e.readDeadLetters(ctx, unaccounted(left)); err != nil {
			return err
		}
		if err := e.findAgain(ctx, present(left), nudgeTakes); err != nil {
			return err
		}
		e.noteShown(left)
	}
	return nil
}

// findAgain searches again, after an attempt to expire them that may take so long, and sets the
// verdict of messages that are gone. One that a nudge left in place is probably locked. In a
// session nobody else has a lock while this worker has accepted it, and nobody is delivered an
// expired message afterwards. One that a nudge has not reached may expire in the scan; order or
// letters that are taken show that.
func (e *entity) findAgain(ctx context.Context, watches []*watch, took time.Duration) error {
	before := make([]search.Want, len(watches))
	for i, wt := range watches {
		before[i] = wt.want
	}
	now, known := e.w.clock.NotAfter()
	if !known && e.settings.sessions {
		now, known = e.w.clock.Now(), true // which is behind, and nobody else settles meanwhile
	}
	mayExpire := e.deadLetters() == search.LettersTaken || e.deadLetters() == search.LettersUnknown && !e.unordered()
	err := e.find(ctx, watches)
	for i, wt := range watches {
		if wt.want.Found != nil {
			wt.evidence.mayExpireNow = wt.evidence.mayExpireNow && (e.settings.sessions && wt.judgement.Native || wt.attempt.left == notReached && mayExpire)
			continue
		}
		wt.see(notFound)
		wt.want.Found = before[i].Found // as it was last seen
		if err == nil && wt.state == stateGone && wt.evidence.mayExpireNow && time.Since(wt.evidence.presentAt) < took && (wt.judgement.Native || known && e.nudgeExpires(wt, wt.want.Found, now)) {
			wt.evidence.expired = wt.want.Found
		}
	}
	return err
}

// expiredByHand records that this worker has dead-lettered the message of wt.
func (e *entity) expiredByHand(wt *watch, strategy string) {
	missed := judge.Missed(wt.want.Found, wt.judgement.Deadline)
	missed.DeadLetteredTime, missed.DeadLetterReason, missed.Strategy, missed.Evidence = e.w.clock.Now(), scan.Reason, strategy, evidenceDeadLetter
	wt.expired(missed)
}

func anyNative(watches []*watch) bool {
	return slices.ContainsFunc(watches, func(wt *watch) bool { return wt.judgement.Native })
}

// present returns the watches whose messages are still on the work queue.
func present(watches []*watch) []*watch {
	return filter(watches, func(wt *watch) bool { return wt.state != stateGone && wt.state != stateMissed })
}

// unaccounted returns the watches whose messages are not known to be dead letters.
func unaccounted(watches []*watch) []*watch {
	return filter(watches, func(wt *watch) bool { return wt.state != stateMissed })
}

func filter(watches []*watch, keep func(*watch) bool) []*watch {
	var kept []*watch
	for _, wt := range watches {
		if keep(wt) {
			kept = append(kept, wt)
		}
	}
	return kept
}
