// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// An Adoption is a queue or topic whose messages get companions although they bypassed the
// endpoints.
type Adoption struct {
	Entity string
	Every  time.Duration // how often it is read for new messages
}

// adopted returns the reference of a message on a queue, at the instant now of the clock of the
// broker. ok is false if it has no deadline.
func adopted(m *link.Message, s Settings, now time.Time) (r scheduler.Reference, ok bool) {
	deadline, by := deadlineOf(&r, m, s), completeBy(&r, m, s)
	if search.Pending(m) || deadline.IsZero() && by.IsZero() {
		return r, false
	}
	r = scheduler.Reference{
		MessageID: m.MessageID, SessionID: m.SessionID, Once: true,
		Sent: m.EnqueuedTime, From: m.EnqueuedTime, Until: m.EnqueuedTime, Deadline: deadline, Stated: howStated(m, s),
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

// howStated returns how the deadline of m was stated, in the order of deadlineOf.
func howStated(m *link.Message, s Settings) string {
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	switch {
	case err == nil && !at.IsZero():
		return "deadline"
	case err == nil && within > 0:
		return "within"
	case m.TimeToLive > 0:
		return "ttl"
	case s.Deadline > 0:
		return "entity"
	}
	return "default"
}

// adoptAll returns references for the messages of a page. It skips messages that have a
// companion from an endpoint of this process.
func (s *adoptPass) adoptAll(page []*link.Message) (late, ahead []scheduler.Reference) {
	now := s.w.latest()
	type group struct {
		at, deadline int64
		session      string
	}
	seen := map[group]bool{}
	for _, m := range page {
		r, ok := adopted(m, s.settings, now)
		if !ok || s.w.cfg.Scheduler.Watches(s.entity, s.path, &r) {
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
