// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math"
	"time"
)

// An instant is a time of the broker's clock in microseconds since the Unix epoch. It is a third of
// the size of a time.Time, of which an entry would hold five, and reaches beyond the year 9999, to
// which people park messages.
type instant int64

const (
	never instant = math.MaxInt64
	unset instant = math.MinInt64
)

// instantOf truncates t to the microsecond. Times that do not fit become the nearest that do.
func instantOf(t time.Time) instant {
	const limit = math.MaxInt64/1_000_000 - 1
	switch s := t.Unix(); {
	case s > limit:
		return never - 1
	case s < -limit:
		return unset + 1
	}
	return instant(t.UnixMicro())
}

// time is the zero time for never and unset.
func (i instant) time() time.Time {
	if i == never || i == unset {
		return time.Time{}
	}
	return time.UnixMicro(int64(i)).UTC()
}

// add rounds d up, so that no span of time is shorter than was asked for, and stops short of never.
func (i instant) add(d time.Duration) instant {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	if us > 0 && int64(i) > int64(never)-1-us {
		return never - 1
	}
	return i + instant(us)
}

// until is the time from now to i, 0 when i has passed, and at most limit.
func (i instant) until(now instant, limit time.Duration) time.Duration {
	if i <= now {
		return 0
	}
	if i >= now.add(limit) {
		return limit
	}
	return time.Duration(i-now) * time.Microsecond
}
