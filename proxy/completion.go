// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/rest"
	"overdue/scheduler"
)

// byComplete is how a deadline is stated that is no deadline for receiving: the message has to be
// settled for good by then, and a notification is sent if it is not.
const byComplete = scheduler.StatedComplete

// completion is how long after it was enqueued m has to be completed, whole milliseconds, and
// whether it says so itself; 0 = nobody does.
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

// second adds the other notifications of m to the promise, besides the missed deadline. There is
// still one companion: it becomes due ahead of the deadline if a notification may be due by then,
// and is written anew for later ones.
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
	if within > 0 && within < span {
		r.Ahead = span - within
	}
	for _, before := range s.WarnBefore {
		if before < span {
			r.Ahead = max(r.Ahead, before)
		}
	}
	// A slot becomes due at the deadline, and for that alone.
	pr.findable = pr.findable && r.Ahead == 0
	return nil
}
