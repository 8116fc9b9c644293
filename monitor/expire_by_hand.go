// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"time"

	"overdue/monitor/judge"
	"overdue/monitor/notify"
	"overdue/monitor/scan"
)

// mayScan reports whether to take the message of wt off its queue by hand. Its deadline comes
// before the end of its time to live, or a live message before it took the credit of the nudge. The
// numbers of partitions do not show their order.
func (r *round) mayScan(s *scope, wt *watch) bool {
	switch {
	case r.settings.Strategy == strategyNative || wt.judgement.Assumed:
		return false
	case !wt.judgement.Native || r.settings.Strategy == strategyScan:
		return true
	}
	return s.blocked != 0 && (s.blocked < wt.identity.Number || r.work.Unordered)
}

// scan dead-letters by hand. It returns the watches that it tried; a message that a scan does
// not find is locked by a consumer.
func (r *round) scan(ctx context.Context) (scanned []*watch, err error) {
	targets := map[*scope][]*scan.Target{}
	watches := map[*scan.Target]*watch{}
	for _, s := range r.scopes {
		for _, wt := range r.expirable(s) {
			if r.mayScan(s, wt) {
				t := &scan.Target{Identity: wt.identity, Deadline: wt.deadline}
				targets[s] = append(targets[s], t)
				watches[t] = wt
				scanned = append(scanned, wt)
			}
		}
	}
	err = eachScope(r.scopes, func(s *scope) (err error) {
		if len(targets[s]) == 0 {
			return nil
		}
		s.others, err = scan.Run(ctx, scan.Config{
			Receiver:   s.receiver,
			Unordered:  r.work.Unordered && s.session == nil, // a session is in one partition
			Clock:      &r.w.clock,
			Lock:       r.settings.lock,
			Operations: r.w.metrics.Operations,
		}, targets[s])
		return err
	})
	for _, s := range r.scopes {
		for _, letter := range s.others {
			r.seeLetter(letter)
		}
	}
	for t, wt := range watches {
		switch t.Outcome {
		case scan.Early:
			wt.see(stateWaiting)
		case scan.DeadLettered:
			r.expireByHand(wt, r.scanStrategy())
		case scan.CutOff:
			wt.attempt.cut = true
		case scan.NotFound:
		}
	}
	if err != nil {
		return scanned, fmt.Errorf("monitor: scan %s: %w", r.name, err)
	}
	return scanned, nil
}

func (r *round) scanStrategy() string {
	if r.settings.sessions {
		return strategySession
	}
	return strategyScan
}

// expireByHand records that this worker has dead-lettered the message of wt.
func (r *round) expireByHand(wt *watch, strategy string) {
	missed := judge.Missed(wt.seen, wt.deadline)
	missed.DeadLetteredTime = r.w.clock.Now()
	missed.DeadLetterReason = scan.Reason
	missed.Strategy = strategy
	missed.Evidence = evidenceDeadLetter
	wt.expire(missed)
}

// expireDeferred dead-letters deferred messages by sequence number, which affects no other message.
// In a session it needs the lock of the session. The broker expires a deferred message only when a
// client requests it: then the call fails, and its dead letter is found next ("Message expiration
// (Time to Live)", deferred messages).
//
// The attempt counts as a delivery. Where the deadline may not hold for the message, one attempt
// shows that: the broker delivers it, and it is deferred again.
//
// It returns the watches over messages that it did not get: locked, gone, or expired at the
// attempt.
func (r *round) expireDeferred(ctx context.Context) (left []*watch, err error) {
	for _, s := range r.scopes {
		if s.receiver == nil {
			continue
		}
		for _, wt := range s.watches {
			if !wt.isOverdue() || !wt.judgement.Deferred || r.isSpared(wt) || wt.isRefuted(&r.w.notified, r.name) {
				continue
			}
			if err := r.takeDeferred(ctx, s, wt); err != nil {
				return left, err
			}
			if wt.state == stateInFlight {
				left = append(left, wt)
			}
		}
	}
	return left, nil
}

// isRefuted reports whether the broker has delivered the message of wt after the deadline that is
// assumed of it. Each of many companions with one message-id would try that, at the cost of a
// delivery.
func (wt *watch) isRefuted(known *notify.Record, path string) bool {
	return wt.judgement.Assumed && known.IsFinal(wt.refutedID(path))
}

// refutedID identifies a deadline that does not hold in the record of events.
func (wt *watch) refutedID(path string) string {
	return eventID(path, wt.identity) + wt.deadline.UTC().Format(time.RFC3339Nano)
}

// takeDeferred dead-letters one deferred message.
func (r *round) takeDeferred(ctx context.Context, s *scope, wt *watch) error {
	isEarly := func(lockedUntil time.Time) bool {
		early := wt.judgement.Assumed || r.w.clock.IsEarly(wt.deadline, lockedUntil, r.settings.lock)
		switch {
		case wt.judgement.Assumed:
			r.w.notified.Note(wt.refutedID(r.name))
		case early:
			wt.see(stateWaiting)
		}
		return early
	}
	dead, err := r.work.DeadLetterDeferred(ctx, wt.identity.Number, s.session, scan.Reason, scan.Description(wt.deadline), isEarly)
	if dead {
		r.expireByHand(wt, strategyDeferred)
	}
	return err
}
