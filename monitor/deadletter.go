// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/scan"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// decideGone decides whether messages that are gone from the work queue met their deadlines. A dead
// letter with the reason of expiry missed its deadline. A dead letter with any other reason was
// received before.
//
// Dead letters keep their sequence numbers, so they are not in the order of arrival, and the newest
// are not at the end. decideGone reads at the number of each message.
func (e *entity) decideGone(ctx context.Context, gone []*watch) error {
	if len(gone) == 0 {
		return nil
	}
	nowhere, err := e.findDead(ctx, gone)
	if err != nil {
		return err
	}
	if tried, err := e.expireUnseen(ctx, nowhere); err != nil {
		return err
	} else if tried {
		if nowhere, err = e.findDead(ctx, nowhere); err != nil {
			return err
		}
	}
	return e.decideUnaccounted(ctx, nowhere)
}

// findDead finds the dead letters of messages that are gone, and returns the watches without one.
func (e *entity) findDead(ctx context.Context, gone []*watch) (nowhere []*watch, err error) {
	wants := make([]*search.Want, len(gone))
	for i, wt := range gone {
		w := &search.Want{Identity: wt.want.Identity, Hint: wt.want.Hint, FirstFit: wt.want.FirstFit}
		w.Seek(&wt.ref)
		wants[i] = w
	}
	if err := e.dead.Find(ctx, wants, e.chooser(e.notNotified)); err != nil {
		return nil, err
	}
	if err := e.findDiffering(ctx, gone, wants); err != nil {
		return nil, err
	}
	e.useSpares(wants)
	for i, wt := range gone {
		wt.want.Merge(wants[i])
		m := wants[i].Found
		switch {
		case m != nil && e.isUnreceived(m):
			wt.expired(e.missed(wt, m))
		case m == nil:
			nowhere = append(nowhere, wt)
		}
	}
	return nowhere, nil
}

// findDiffering finds dead letters that have another number or stamp than their messages had. One of
// the two must be the same. As long as no dead letter of e was recognized, only the message-id names
// that of a message which was not seen. If one differs afterwards, the others were recognized by
// chance, as 1 of 1.
func (e *entity) findDiffering(ctx context.Context, gone []*watch, wants []*search.Want) error {
	var differing []*search.Want
	due := map[*search.Want]time.Time{}
	unknown := e.lettersMayDiffer()
	for i, w := range wants {
		wt := gone[i]
		if w.Found == nil && w.Spare == nil && wt.ref.MessageID != "" && (unknown || wt.evidence.awaited > 0 && w.Number != 0) {
			w.Ref, w.MessageID = &wt.ref, wt.ref.MessageID
			differing, due[w] = append(differing, w), wt.ref.DeadlineAt(wt.ref.From).Add(-search.WindowMargin)
		}
	}
	taken := e.taken()
	return e.dead.FindAnywhere(ctx, differing, func(w *search.Want, m *link.Message) bool {
		at := search.IdentityOf(m)
		if expired(m) && (w.Number == at.Number || w.Number != 0 && w.Enqueued == at.Enqueued) {
			e.w.states.update(e.key, func(f *entityState) { f.deadLetters.Contradict() })
			return true
		}
		sent := !m.EnqueuedTime.Before(w.Ref.From.Add(-search.WindowMargin)) && !m.EnqueuedTime.After(w.Ref.Until.Add(search.WindowMargin))
		if !unknown || w.Number != 0 || taken[at] || !e.notNotified(m) || !sent && m.EnqueuedTime.Before(due[w]) {
			return false
		}
		taken[at] = true
		return true
	})
}

// readDeadLetters finds the dead letters of messages with known sequence numbers. After an attempt
// to expire them that is cheaper than a check of the work queue, and early enough to see a dead
// letter before a consumer takes it.
func (e *entity) readDeadLetters(ctx context.Context, watches []*watch) error {
	if len(watches) == 0 || e.settings.forwardDead != "" {
		return nil
	}
	wants := byIdentity(watches)
	err := e.dead.FindNumbered(ctx, wants, nil)
	e.tookLetters(watches, wants)
	return err
}

// takeKept finds the dead letters of watches that were read behind a nudge for another message.
func (e *entity) takeKept(watches []*watch) {
	watches = filter(watches, func(wt *watch) bool { return wt.want.Number != 0 && wt.state != stateMissed })
	wants := byIdentity(watches)
	e.kept.Take(wants)
	e.tookLetters(watches, wants)
}

// tookLetters moves watches on whose dead letters wants have found.
func (e *entity) tookLetters(watches []*watch, wants []*search.Want) {
	for i, wt := range watches {
		// A restored one may be of a copy. Then the next peek shows more.
		if m := wants[i].Found; m != nil && (expired(m) || !e.dead.Restored) {
			wt.see(notFound)
			if expired(m) {
				wt.expired(e.missed(wt, m))
			}
		}
	}
}

// byIdentity returns searches for the messages of watches, which were found before.
func byIdentity(watches []*watch) []*search.Want {
	wants := make([]*search.Want, len(watches))
	for i, wt := range watches {
		wants[i] = &search.Want{Identity: wt.want.Identity}
	}
	return wants
}

// readSeenDeadLetters finds the dead letters of messages that an earlier search met on the work
// queue, and that are gone from it. It accepts no message that may have been enqueued before
// the send, since that could be an older one with the same message-id.
func (e *entity) readSeenDeadLetters(ctx context.Context, watches []*watch) error {
	var wants []*search.Want
	var hinted []*watch
	for _, wt := range watches {
		if wt.want.Number == 0 && wt.want.Found == nil && wt.want.Hint != 0 && !wt.ref.From.IsZero() {
			w := &search.Want{Hint: wt.want.Hint, FirstFit: wt.want.FirstFit}
			w.Seek(&wt.ref)
			w.From = w.Likely
			wants, hinted = append(wants, w), append(hinted, wt)
		}
	}
	if len(wants) == 0 {
		return nil
	}
	err := e.dead.FindNumbered(ctx, wants, e.chooser(e.notNotified))
	for i, wt := range hinted {
		wt.want.Merge(wants[i])
		if m := wants[i].Found; m != nil {
			wt.expired(e.missed(wt, m))
		}
	}
	return err
}

// notNotified reports whether m is the dead letter of a missed deadline without a notification.
func (e *entity) notNotified(m *link.Message) bool {
	return e.isUnreceived(m) && !e.w.notified.Has(e.eventID(m.SequenceNumber, m.EnqueuedTime))
}

// isUnreceived reports whether m was dead-lettered without having been received: it expired, or it
// could not be forwarded, for whatever reason. Nobody receives from an entity that forwards.
func (e *entity) isUnreceived(m *link.Message) bool { return expired(m) || e.settings.forwardTo != "" }

// expired reports whether m was dead-lettered because nobody received it in time.
func expired(m *link.Message) bool {
	return m.DeadLetterReason == search.ReasonExpired || m.DeadLetterReason == scan.Reason
}

// missed describes the missed deadline of m, a dead letter.
func (e *entity) missed(wt *watch, m *link.Message) *scheduler.Missed {
	wt.learnID(m)
	strategy, deadline, moved := strategyNative, judge.DeadlineOf(&wt.ref, m, e.settings.Settings), e.w.clock.Now()
	if e.lettersMayDiffer() && m.EnqueuedTime.After(wt.ref.Until.Add(search.WindowMargin)) && !wt.ref.Until.IsZero() {
		deadline = wt.due() // it was enqueued again
	}
	if m.DeadLetterReason == scan.Reason {
		strategy = strategyScan
	} else if at, known := e.nudger.MovedAt(duration.Later(deadline, wt.seenAt)); known {
		moved = at // it has no stamp
	}
	if m.DeadLetterReason != "" && e.settings.forwardDead == "" {
		moved = duration.Later(moved, deadline) // our clock may be a little behind
		seen := !wt.seenAt.IsZero() || wt.evidence.present != nil
		e.sawDeadLetter(m, seen && !e.dead.Restored && wt.want.Identity == search.IdentityOf(m))
	}
	missed := judge.Missed(m, deadline)
	missed.DeadLetteredTime, missed.DeadLetterReason, missed.Strategy, missed.Evidence = moved, m.DeadLetterReason, strategy, evidenceDeadLetter
	return missed
}
