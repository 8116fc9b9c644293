// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"math"
	"time"
)

// Types that the SDKs for .NET and Java send as described values, since AMQP does not have them.
const (
	TypeTimeSpan       Symbol = "com.microsoft:timespan"        // long, ticks of 100 ns
	TypeDateTimeOffset Symbol = "com.microsoft:datetime-offset" // long, ticks since the year 1
)

// EpochTicks is the Unix epoch in ticks since the year 1.
const EpochTicks = 621_355_968_000_000_000

const tick = 100 * time.Nanosecond

// TimeOrSpan returns v as a time.Time, in UTC, if it is a timestamp or a date-time-offset, as a
// time.Duration if it is a timespan, and otherwise as it is. A timespan that is longer than the
// longest time.Duration is that one.
func TimeOrSpan(v any) any {
	switch v := v.(type) {
	case Timestamp:
		return v.Time()
	case Described:
		ticks, isLong := v.Value.(int64)
		switch {
		case isLong && v.Descriptor == TypeTimeSpan:
			most := int64(math.MaxInt64 / tick)
			return time.Duration(min(max(ticks, -most), most)) * tick
		case isLong && v.Descriptor == TypeDateTimeOffset:
			const ticksPerSecond = int64(time.Second / tick)
			since := ticks - EpochTicks
			return time.Unix(since/ticksPerSecond, since%ticksPerSecond*int64(tick)).UTC()
		}
	}
	return v
}
