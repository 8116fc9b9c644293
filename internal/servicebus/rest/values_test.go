// SPDX-License-Identifier: Apache-2.0

package rest

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
		if got, ok := parseTimeSpan(text); !ok || got != want {
			t.Errorf("parseTimeSpan(%q) = %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "40", "PT40S", "40s", "00:00:40:00:00", "a:b:c", "-00:00:40", "00:00:"} {
		if got, ok := parseTimeSpan(text); ok {
			t.Errorf("parseTimeSpan(%q) = %v, want that it is none", text, got)
		}
	}
}

func TestTimesAreReadAsUTC(t *testing.T) {
	want := time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC)
	for _, text := range []string{
		"Sun, 06 Nov 2033 08:49:37 GMT", " Sun, 06 Nov 2033 08:49:37 GMT", "Sun, 06 Nov 2033 10:49:37 +0200",
		"2033-11-06T08:49:37Z", "2033-11-06T10:49:37+02:00", "2033-11-06T08:49:37", "2033-11-06T08:49:37.000", "2033-11-06 08:49:37Z", "2033-11-06 08:49:37",
	} {
		got, ok := parseTime(text)
		if !ok || !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("parseTime(%q) = %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "2033", "2033-11-06", "Sun, 06 Nov 2033 08:49:37 EST", "2033-13-06T08:49:37Z", "not a date at all, is it"} {
		if got, ok := parseTime(text); ok {
			t.Errorf("parseTime(%q) = %v, want that it is none", text, got)
		}
	}
}
