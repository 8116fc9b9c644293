// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"strconv"
	"time"

	"overdue/internal/servicebus/duration"
)

// Application properties by which a message states its own deadline, in the order in
// which they count.
const (
	propertyDeadline = "overdue-deadline" // an instant: a timestamp, a DateTimeOffset or RFC 3339
	propertyWithin   = "overdue-within"   // a duration: a TimeSpan, 30s, PT30S or 00:00:30
	propertyExpiry   = "ce-expirytime"    // an instant: the expirytime extension of CloudEvents in binary mode
)

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

// StatedDeadline reads the deadline that a message states in its application properties,
// by the value of each name: an instant, or a duration from its enqueued-time, or neither. Those of
// AMQP come as amqp.TimeOrSpan returns them. The proxy reads it to schedule the companion and the
// monitor to judge the message, so that both mean the same. The error is a sentence for the sender
// of the message.
func StatedDeadline(property func(name string) any) (at time.Time, within time.Duration, err error) {
	for _, name := range []string{propertyDeadline, propertyWithin, propertyExpiry} {
		v := property(name)
		if v == nil {
			continue
		}
		if name == propertyWithin {
			within, err = statedWithin(name, v)
		} else {
			at, err = statedAt(name, v)
		}
		return at, within, err
	}
	return time.Time{}, 0, nil
}

func statedAt(name string, v any) (time.Time, error) {
	switch v := v.(type) {
	case time.Time:
		return v.UTC(), nil
	case string:
		if t, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is %s; an instant is written as in 2026-01-31T12:00:00Z", name, quoted(v))
}

func statedWithin(name string, v any) (time.Duration, error) {
	within, ok := readSpan(v)
	switch {
	case !ok:
		return 0, fmt.Errorf("%s is %s; a duration is written with its unit, as 30s, 7d or PT30S", name, quoted(v))
	case within <= 0 || within > maxWithin:
		return 0, fmt.Errorf("%s is %s; it must be more than 0 and at most 100 years", name, quoted(v))
	}
	return within, nil
}

// readSpan reads a duration: a timespan, or one of the ways to write one.
func readSpan(v any) (time.Duration, bool) {
	switch v := v.(type) {
	case time.Duration:
		return v, true
	case string:
		if d, err := duration.Parse(v); err == nil {
			return d, true
		}
		return duration.ParseTimeSpan(v)
	}
	return 0, false
}

// quoted is a value from outside as an error shows it: short, and without line breaks.
func quoted(v any) string {
	s, ok := v.(string)
	if !ok {
		return fmt.Sprintf("a value of type %T", v)
	}
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return strconv.Quote(s)
}
