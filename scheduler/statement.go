// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Application properties by which a message states its own deadline.
const (
	propertyDeadline = "overdue-deadline" // an instant: AMQP timestamp or RFC 3339
	propertyWithin   = "overdue-within"   // a duration from the enqueued-time: 30s or PT30S
)

// StatedDeadline reads the deadline that a message states in its application
// properties: an instant, or a duration from its enqueued-time, or neither. The proxy
// reads it to schedule the companion and the monitor to judge the message, so both
// mean the same. The instant wins where both are given.
func StatedDeadline(properties map[string]any) (at time.Time, within time.Duration, err error) {
	if v, ok := properties[propertyDeadline]; ok {
		switch v := v.(type) {
		case time.Time:
			return v.UTC(), 0, nil
		case string:
			at, err := time.Parse(time.RFC3339Nano, v)
			if err != nil {
				return time.Time{}, 0, fmt.Errorf("%s is %q, want an instant such as 2006-01-02T15:04:05Z", propertyDeadline, v)
			}
			return at.UTC(), 0, nil
		}
		return time.Time{}, 0, fmt.Errorf("%s is a %T, want a timestamp or a string", propertyDeadline, v)
	}
	if v, ok := properties[propertyWithin]; ok {
		s, isString := v.(string)
		if !isString {
			return time.Time{}, 0, fmt.Errorf("%s is a %T, want a string such as 30s or PT30S", propertyWithin, v)
		}
		within, err := parseDuration(s)
		if err != nil || within <= 0 || within > maxWithin {
			return time.Time{}, 0, fmt.Errorf("%s is %q, want a positive duration such as 30s or PT30S", propertyWithin, s)
		}
		return time.Time{}, within, nil
	}
	return time.Time{}, 0, nil
}

// parseDuration reads 30s, 1h30m, or ISO 8601 with days and smaller parts: PT30S, P1DT2H.
func parseDuration(s string) (time.Duration, error) {
	if !strings.HasPrefix(s, "P") {
		return time.ParseDuration(s)
	}
	date, clock, hasClock := strings.Cut(s[1:], "T")
	var total time.Duration
	if date != "" {
		days, ok := strings.CutSuffix(date, "D")
		n, err := strconv.ParseFloat(days, 64)
		if !ok || err != nil || !(n >= 0 && n <= maxWithin.Hours()/24) { // NaN is neither
			return 0, fmt.Errorf("%q is no duration", s)
		}
		total = time.Duration(n * float64(24*time.Hour))
	}
	if hasClock {
		// The parts of the clock are spelled as in Go, in capitals.
		d, err := time.ParseDuration(strings.ToLower(clock))
		if err != nil || clock == "" || strings.Trim(clock, "0123456789.HMS") != "" {
			return 0, fmt.Errorf("%q is no duration", s)
		}
		total += d
	} else if date == "" {
		return 0, fmt.Errorf("%q is no duration", s)
	}
	return total, nil
}
