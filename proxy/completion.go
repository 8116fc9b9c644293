// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/rest"
	"overdue/scheduler"
)

// byComplete is the source of a completion deadline. If a consumer has not settled the message
// for good by then, a notification is sent; nothing is expired.
const byComplete = scheduler.StatedComplete

// completion returns the time in which m has to be completed after it was enqueued, in whole
// milliseconds; 0 = no such deadline. stated reports whether m itself states it.
func completion(m *message, s Settings) (within time.Duration, stated bool, err error) {
	if m.Property != nil {
		if within, err = scheduler.StatedCompletion(m.Property); err != nil {
			return 0, false, rest.BadRequest("%s.", err)
		}
	}
	if within > 0 {
		return duration.RoundUp(within), true, nil
	}
	return duration.RoundUp(min(s.CompleteWithin, maxDeadline)), false, nil
}

// second adds the reminder and the completion deadline of m to its promise. They share the
// companion of the deadline. It becomes due early enough for the first of them, or for the end of
// the time to live, and the monitor rewrites it for later ones.
func (pr *promise) second(m *message, s Settings) error {
	r := &pr.ref
	within, stated, err := completion(m, s)
	if err != nil || r.Stated == byComplete {
		return err
	}
	span := r.Within
	if span == 0 {
		span = r.Deadline.Sub(duration.Later(r.Sent, m.ScheduledEnqueueTime))
	}
	if within > 0 && within <= span && stated && r.Stated == byWithin {
		return rest.BadRequest("The message has to be completed %v after it was enqueued and received only %v after: overdue-complete-within has to be more than overdue-within.", within, span)
	}
	r.CompleteWithin = within
	// The broker may expire a message, or its copy in a subscription, before the stated deadline.
	life := duration.Shorter(m.TTL, duration.Shorter(s.DefaultMessageTimeToLive, s.SubscriptionTimeToLive))
	for _, first := range []time.Duration{within, duration.RoundUp(life)} {
		if first > 0 && first < span {
			r.Ahead = max(r.Ahead, span-first)
		}
	}
	for _, before := range s.WarnBefore {
		if before < span {
			r.Ahead = max(r.Ahead, before)
		}
	}
	// A slot becomes due only at the deadline.
	pr.findable = pr.findable && r.Ahead == 0
	return nil
}
