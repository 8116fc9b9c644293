// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// An Adoption is a queue or topic whose messages get companions although they came through no endpoint.
type Adoption struct {
	Entity string
	Every  time.Duration // how often it is looked through for new messages
}

// adopted is the reference of a message that was found on its queue at the instant now of the broker's clock, and when it has
// to be checked first. ok is false when nothing is expected of it.
func adopted(m *link.Message, s Settings, now time.Time) (r scheduler.Reference, ok bool) {
	deadline, by := deadlineOf(&r, m, s), completeBy(&r, m, s)
	if pending(m) || deadline.IsZero() && by.IsZero() {
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

// howStated is what of m says its deadline, in the order of deadlineOf.
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

// adoptAll gives companions to the messages of a page of one path. Those that an endpoint of this process has given one to
// are left to it.
func (s *adoptPass) adoptAll(page []*link.Message) (late, ahead []scheduler.Reference) {
	now := s.w.latest()
	type unnamed struct {
		at, deadline int64
		session      string
	}
	seen := map[unnamed]bool{}
	for _, m := range page {
		r, ok := adopted(m, s.settings, now)
		if !ok || s.w.cfg.Scheduler.Watches(s.entity, s.path, &r) {
			continue
		}
		if r.Unnamed() {
			// It stands for all that were enqueued at that instant with that deadline.
			k := unnamed{r.From.UnixNano(), r.Deadline.UnixNano(), r.SessionID}
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
