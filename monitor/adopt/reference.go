// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
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
	r = scheduler.Reference{
		MessageID: m.MessageID, SessionID: m.SessionID, Once: true,
		Sent: m.EnqueuedTime, From: m.EnqueuedTime, Until: m.EnqueuedTime, Deadline: deadline, Stated: judge.HowStated(m, s),
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

// adoptAll returns references for the messages of a page. It skips messages that have a
// companion from an endpoint of this process.
func (s *pass) adoptAll(page []*link.Message) (late, ahead []scheduler.Reference) {
	now := s.a.cfg.Latest()
	type group struct {
		at, deadline int64
		session      string
	}
	seen := map[group]bool{}
	for _, m := range page {
		r, ok := reference(m, s.settings, now)
		if !ok || s.a.cfg.Scheduler.Watches(s.entity, s.path, &r) {
			continue
		}
		if r.WithoutID() {
			// It stands for all messages that were enqueued at that instant with that deadline.
			k := group{r.From.UnixNano(), r.Deadline.UnixNano(), r.SessionID}
			if seen[k] {
				continue
			}
			seen[k] = true
		}
		if r.Deadline.Add(-r.Ahead).After(now) {
			ahead = append(ahead, r)
		} else {
			late = append(late, r)
		}
	}
	return late, ahead
}
