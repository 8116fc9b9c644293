// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// watch is the check of one message: a reference, and what is known of its message so far. The
// goroutine of its entity owns it until it ends.
type watch struct {
	ref       scheduler.Reference
	slot      *scheduler.Companion // the watch is over a slot, not over a message yet
	companion *intake.Companion
	next      time.Time // by our clock: when to check

	want      search.Want // the last search and its result
	state     state
	judgement judge.Judgement   // of the last check
	missed    *scheduler.Missed // how it expired, once it has
	seenAt    time.Time         // by the broker's clock: when a check last found it on the work queue
	hops      int               // how often it was forwarded, as far as it was followed
	checks    int               // checks that found it in flight
	failures  int               // checks that failed in a row

	// The nudge that comes before any check, see nudge_first.go.
	nudgeAt          time.Time // for when it was requested, by the clock of the broker
	nudgeAwaited     bool      // it waits for the nudge, or has waited
	deadLetterSought bool      // its dead letter was searched for after that

	// Message-ids that repeat, see duplicate_ids.go.
	duplicates        duplicateWatch
	duplicatesWatched bool     // there was a watch over them while its message was there
	events            []string // ids of the events of those that were found

	evidence evidence // see evidence.go
	attempt  attempt  // to expire it, see receive_scope.go
}

// sendTime is how long after its companion a message may be enqueued, if the companion does not
// state a window. A send that takes longer gets a second companion.
const sendTime = 3 * time.Second

// open returns how long the message of wt may still arrive on the work queue, at the instant
// now of the clock of the broker. Only after that its absence has a meaning.
func (wt *watch) open(now time.Time) time.Duration {
	if wt.want.Number != 0 {
		return 0 // it has been seen
	}
	if wt.ref.Until.IsZero() {
		return time.Until(wt.companion.Since.Add(sendTime))
	}
	return wt.ref.Until.Add(search.WindowMargin).Sub(now)
}

// watchesOf makes a watch of each reference of a companion, or one over its slot.
func (w *Worker) watchesOf(h *intake.Companion) []*watch {
	now := time.Now()
	if h.Content.IsSlot() {
		h.Add(1)
		return []*watch{{slot: &h.Content, ref: scheduler.Reference{Sent: h.Content.SlotStart()}, companion: h, next: now}}
	}
	watches := make([]*watch, len(h.Content.References))
	for i, r := range h.Content.References {
		watches[i] = &watch{ref: r, companion: h, next: now}
		if r.Missed != nil {
			watches[i].expired(r.Missed)
		} else if r.Notified != "" {
			w.restOf(watches[i])
		}
	}
	h.Add(len(watches))
	return watches
}

// again returns a companion that takes over from that of wt.
func (wt *watch) again(entity string, due time.Time, attempt int) *scheduler.Companion {
	ref := wt.ref
	ref.Missed = wt.missed
	return &scheduler.Companion{Entity: entity, Due: due, References: []scheduler.Reference{ref}, Attempt: attempt}
}
