// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"math"
	"testing"
	"time"
)

func TestTimeOrSpan(t *testing.T) {
	noon := time.Date(2026, 1, 31, 12, 0, 0, 100, time.UTC)
	ticks := int64(639_054_576_000_000_001) // of noon
	for name, tc := range map[string]struct{ v, want any }{
		"timestamp":           {TimestampOf(noon), noon.Truncate(time.Millisecond)},
		"date-time-offset":    {Described{TypeDateTimeOffset, ticks}, noon},
		"before the epoch":    {Described{TypeDateTimeOffset, int64(0)}, time.Time{}},
		"timespan":            {Described{TypeTimeSpan, int64(15_000_001)}, 1500*time.Millisecond + 100},
		"negative timespan":   {Described{TypeTimeSpan, int64(-10_000_000)}, -time.Second},
		"longest timespan":    {Described{TypeTimeSpan, int64(math.MaxInt64)}, time.Duration(math.MaxInt64).Truncate(tick)},
		"shortest timespan":   {Described{TypeTimeSpan, int64(math.MinInt64)}, -time.Duration(math.MaxInt64).Truncate(tick)},
		"timespan of a text":  {Described{TypeTimeSpan, "00:00:30"}, Described{TypeTimeSpan, "00:00:30"}},
		"another description": {Described{Symbol("com.microsoft:uri"), int64(1)}, Described{Symbol("com.microsoft:uri"), int64(1)}},
		"by a code":           {Described{uint64(1), int64(1)}, Described{uint64(1), int64(1)}},
		"by bytes":            {Described{[]byte("x"), int64(1)}, nil},
		"long":                {int64(5), int64(5)},
		"string":              {"30s", "30s"},
		"nil":                 {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := TimeOrSpan(tc.v)
			if name == "by bytes" {
				if _, same := got.(Described); !same {
					t.Errorf("TimeOrSpan(%v) = %v, want it unchanged", tc.v, got)
				}
			} else if got != tc.want {
				t.Errorf("TimeOrSpan(%v) = %v, want %v", tc.v, got, tc.want)
			}
		})
	}
}
