// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/scan"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// reference returns the reference of a message on a queue, at the instant now of the clock of the
// broker. ok is false if it has no deadline.
func reference(m *link.Message, s judge.Settings, now time.Time) (r scheduler.Reference, ok bool) {
	deadline, by := judge.DeadlineOf(&r, m, s), judge.CompleteBy(&r, m, s)
	if search.Pending(m) || deadline.IsZero() && by.IsZero() {
		return r, false
	}
	how, _ := judge.HowStated(m, s)
	r = scheduler.Reference{
		MessageID: m.MessageID,
		SessionID: m.SessionID,
		Once:      true,
		Sent:      m.EnqueuedTime,
		From:      m.EnqueuedTime,
		Until:     m.EnqueuedTime,
		Deadline:  deadline,
		Stated:    how,
	}
	if deadline.IsZero() {
		r.Deadline, r.Stated = by, scheduler.StatedComplete
		by = time.Time{}
	}
	if r.Stated != "deadline" {
		r.Within = r.Deadline.Sub(m.EnqueuedTime)
	}
	if !by.IsZero() {
		r.CompleteWithin = by.Sub(m.EnqueuedTime)
		r.Ahead = max(r.Deadline.Sub(by), 0)
	}
	if r.Stated == scheduler.StatedComplete {
		return r, true
	}
	for _, before := range s.WarnBefore {
		if at := r.Deadline.Add(-before); at.After(m.EnqueuedTime) && at.After(now) {
			r.Ahead = max(r.Ahead, before)
		}
	}
	return r, true
}

// take takes a message, or a dead letter that has expired, unless it needs no companion. One
// without an id stands for all that were enqueued at that instant with that deadline.
func (p *pass) take(m *link.Message) {
	r, ok := reference(m, p.settings, p.limit)
	r.Ahead = min(r.Ahead, r.Deadline.Sub(p.limit)) // what is overdue is due at one instant
	isLetter := m.DeadLetterReason != ""
	hasExpired := m.DeadLetterReason == search.ReasonExpired || m.DeadLetterReason == scan.Reason
	switch n := len(p.refs); {
	case !ok || r.WithoutID() && n > 0 && p.refs[n-1] == r:
		return
	case isLetter && (!hasExpired || r.Deadline.Before(p.Request.Since)):
		return
	case p.Request == nil && p.cfg.Scheduler.Watches(p.Entity, p.path, &r):
		return
	}
	p.refs = append(p.refs, r)
}
