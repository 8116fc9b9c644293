// SPDX-License-Identifier: Apache-2.0

package duration

import (
	"math"
	"testing"
	"time"
)

func TestTimeSpansAreReadAsDotNetWritesThem(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"00:00:40": 40 * time.Second, "0.00:00:40": 40 * time.Second, "1.02:03:04.5": 26*time.Hour + 3*time.Minute + 4500*time.Millisecond,
		"00:10": 10 * time.Minute, "0:0:1": time.Second, "10675199.02:48:05.4775807": math.MaxInt64,
	} {
		if got, ok := ParseTimeSpan(text); !ok || got != want {
			t.Errorf("ParseTimeSpan(%q) = %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "40", "PT40S", "40s", "00:00:40:00:00", "a:b:c", "-00:00:40", "00:00:"} {
		if got, ok := ParseTimeSpan(text); ok {
			t.Errorf("ParseTimeSpan(%q) = %v, want that it is none", text, got)
		}
	}
}
