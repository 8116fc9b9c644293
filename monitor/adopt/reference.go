// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"time"

	"overdue/internal/servicebus/duration"
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
	// Another default may have held for a message that was sent before. Then the broker decides.
	sentBefore := !m.ScheduledEnqueueTime.IsZero() || m.EnqueuedTime.Before(s.DefaultSince.Add(clockMargin))
	if r.Stated != "deadline" && (r.Stated != "default" || !sentBefore) {
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

// takeMessage takes a message of the queue, unless it needs no companion. One without an id stands
// for all that were enqueued at that instant with that deadline.
func (p *pass) takeMessage(m *link.Message) {
	r, ok := reference(m, p.settings, p.limit)
	if !ok || p.nameless[r] || !p.needsCompanion(m, &r) {
		return
	}
	if r.WithoutID() {
		p.nameless[r] = true
	}
	p.refs = append(p.refs, r)
}

// needsCompanion reports whether m, the message of r, may have no companion that is due in time.
func (p *pass) needsCompanion(m *link.Message, r *scheduler.Reference) bool {
	if p.request != nil && p.request.All {
		return true
	}
	byDefault := r.Deadline.Equal(m.EnqueuedTime.Add(p.settings.DefaultMessageTimeToLive))
	if p.request != nil && (!byDefault || m.EnqueuedTime.Before(p.request.Since)) {
		return false
	}
	return !p.a.cfg.Scheduler.Watches(p.entity, p.path, r)
}

// takeLetter takes a dead letter whose deadline was missed, unless that was notified: it is missed,
// whatever was late. Its companion is there for the notification alone.
func (p *pass) takeLetter(m *link.Message) {
	r, ok := reference(m, p.settings, p.limit)
	missed := m.DeadLetterReason == search.ReasonExpired || m.DeadLetterReason == scan.Reason
	if !ok || !missed || r.Stated == scheduler.StatedComplete || r.Deadline.Before(p.request.Since) {
		return
	}
	if !p.needsCompanion(m, &r) || p.a.cfg.Notified(p.path, m.SequenceNumber, m.EnqueuedTime) {
		return
	}
	r.Ahead = 0
	r.Missed = judge.Missed(m, r.Deadline)
	r.Missed.DeadLetteredTime = duration.Later(p.a.cfg.Latest(), r.Deadline) // it has no stamp
	r.Missed.DeadLetterReason, r.Missed.Evidence, r.Missed.Strategy = m.DeadLetterReason, "deadLetter", "native"
	if m.DeadLetterReason == scan.Reason {
		r.Missed.Strategy = "scan"
	}
	p.refs = append(p.refs, r)
}
