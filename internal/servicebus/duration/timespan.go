// SPDX-License-Identifier: Apache-2.0

package duration

import (
	"math"
	"regexp"
	"strings"
	"time"
)

// timeSpan is how .NET writes a span: [d.]hh:mm[:ss[.fffffff]].
var timeSpan = regexp.MustCompile(`^(?:([0-9]{1,8})\.)?([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,7}))?)?$`)

// ParseTimeSpan reads a span as .NET writes it, 1.02:03:04.5 for a day and more. What a
// Duration cannot hold, like the longest TimeSpan of .NET, is the longest Duration.
func ParseTimeSpan(s string) (d time.Duration, ok bool) {
	g := timeSpan.FindStringSubmatch(strings.TrimSpace(s))
	if g == nil {
		return 0, false
	}
	days, hours, minutes, seconds := digits(g[1]), digits(g[2]), digits(g[3]), digits(g[4])
	if days > int64(math.MaxInt64/day)-100 { // hh:mm:ss are less than 100 hours and a bit
		return math.MaxInt64, true
	}
	ticks := digits((g[5] + "0000000")[:7]) // of 100 ns
	return time.Duration(days)*day + time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute +
		time.Duration(seconds)*time.Second + time.Duration(ticks)*100*time.Nanosecond, true
}

// digits is the number that a few digits make, 0 for none.
func digits(s string) (n int64) {
	for _, c := range s {
		n = 10*n + int64(c-'0')
	}
	return n
}
