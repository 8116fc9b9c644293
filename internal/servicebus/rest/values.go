// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"math"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// timeFormats are the ways to write an instant: RFC 1123 as HTTP has it, and ISO 8601.
// Where no zone is given it is UTC, which is what the API's names say.
var timeFormats = []string{
	http.TimeFormat, time.RFC1123Z,
	time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999",
}

// parseTime reads an instant, as UTC.
func parseTime(s string) (t time.Time, ok bool) {
	s = strings.TrimSpace(s)
	// Most property values are no dates; the shortest date has 19 characters.
	if len(s) < 19 || len(s) > 40 {
		return time.Time{}, false
	}
	for _, format := range timeFormats {
		if t, err := time.Parse(format, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// timeSpan is how .NET writes a span: [d.]hh:mm[:ss[.fffffff]].
var timeSpan = regexp.MustCompile(`^(?:([0-9]{1,8})\.)?([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,7}))?)?$`)

// parseTimeSpan reads a span as .NET writes it, 1.02:03:04.5 for a day and more. What a
// Duration cannot hold, like the longest TimeSpan of .NET, is the longest Duration.
func parseTimeSpan(s string) (d time.Duration, ok bool) {
	g := timeSpan.FindStringSubmatch(strings.TrimSpace(s))
	if g == nil {
		return 0, false
	}
	days, hours, minutes, seconds := digits(g[1]), digits(g[2]), digits(g[3]), digits(g[4])
	if days > int64(math.MaxInt64/(24*time.Hour))-100 { // hh:mm:ss are less than 100 hours and a bit
		return math.MaxInt64, true
	}
	ticks := digits((g[5] + "0000000")[:7]) // of 100 ns
	return time.Duration(days)*24*time.Hour + time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute +
		time.Duration(seconds)*time.Second + time.Duration(ticks)*100*time.Nanosecond, true
}

// digits is the number that a few digits make, 0 for none.
func digits(s string) (n int64) {
	for _, c := range s {
		n = 10*n + int64(c-'0')
	}
	return n
}
