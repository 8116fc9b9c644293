// SPDX-License-Identifier: Apache-2.0

package scheduler

import "time"

// StatedComplete is how a reference is stated whose deadline is that of completion alone: its
// message is never expired for it, only reported.
const StatedComplete = "complete"

// propertyComplete states by when a message has to be settled for good: a duration from its
// enqueued-time, as overdue-within is.
const propertyComplete = "overdue-complete-within"

// StatedCompletion reads how long after its enqueued-time a message says that it has to be
// completed, 0 when it does not say. For the error see [StatedDeadline].
func StatedCompletion(property func(name string) any) (time.Duration, error) {
	v := property(propertyComplete)
	if v == nil {
		return 0, nil
	}
	return statedWithin(propertyComplete, v)
}

// alarm is when the message has to be looked at first, by what is known when it is sent.
func (r *Reference) dueAt() time.Time {
	at := r.Deadline.Add(-r.Ahead)
	if at.Sub(r.Sent) < shortLife || r.Within > 0 && r.Within-r.Ahead < shortLife {
		return roundUp(at, shortSlot)
	}
	return slotDue(slotEnd(at))
}

// beyondFirst reports whether a reader of version 1 would misjudge the reference: it would expire a
// message that nobody asked to expire, report a missed deadline that was not, or find no name.
func (r *Reference) beyondFirst() bool {
	return r.WithoutID() || r.Stated == StatedComplete || r.Missed != nil && r.Missed.Type != ""
}

// Version is that of the wire form of c: the first that can say it.
func (c *Companion) Version() int {
	switch {
	case c.IsSlot() && c.length() != shortSlot:
		return 3
	case len(c.Spans) > 0:
		return 2
	}
	for i := range c.References {
		if c.References[i].beyondFirst() {
			return 2
		}
	}
	return 1
}
