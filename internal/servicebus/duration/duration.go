// SPDX-License-Identifier: Apache-2.0

// Package duration reads and writes durations as people, configuration and Service Bus write them,
// and compares spans and times by its rules.
package duration

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Forever is how the service spells "no limit": the longest TimeSpan of .NET,
// which is a hundred times the longest time.Duration.
const Forever = "P10675199DT2H48M5.4775807S"

const day = 24 * time.Hour

// ErrSyntax is the error for a text that is no duration. ErrUnit is the one for a number without a
// unit.
var (
	ErrSyntax = errors.New("not a duration; write one like 30s, 1h30m, 7d or PT30S")
	ErrUnit   = errors.New("a number without a unit; write one like 30s, 1h30m, 7d or PT30S")
)

// Parse reads 30s and 1h30m as Go writes them, and 7d and 1d12h with days of 24 hours. It also
// reads ISO 8601 as Service Bus writes it: PT30S, P7D, without years and months. All of them may be
// negative. A duration beyond time.Duration is the longest one in ISO 8601, where Service Bus means
// "no limit" by it, and ErrSyntax otherwise.
func Parse(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	bare, negative := strings.CutPrefix(s, "-")
	d, ok := ParseISO8601(bare)
	if date, _, _ := strings.Cut(bare, "T"); strings.ContainsAny(date, "YM") {
		return 0, ErrSyntax // which have no fixed length
	}
	if !ok {
		d, ok = parseDays(bare)
	}
	switch {
	case !ok && isNumber(bare):
		return 0, ErrUnit
	case !ok:
		return 0, ErrSyntax
	case negative:
		return -d, nil
	}
	return d, nil
}

// parseDays reads days, and what time.ParseDuration reads behind them.
func parseDays(s string) (time.Duration, bool) {
	days, rest, ok := strings.Cut(s, "d")
	n, err := strconv.ParseUint(days, 10, 32)
	if !ok || err != nil || n > uint64(math.MaxInt64/day) {
		return 0, false
	}
	total := time.Duration(n) * day
	if rest == "" {
		return total, true
	}
	d, err := time.ParseDuration(rest)
	if err != nil || rest[0] == '-' || rest[0] == '+' || d > math.MaxInt64-total {
		return 0, false
	}
	return total + d, true
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// iso8601 has each unit at most once, in their order, and a fraction for seconds only.
var iso8601 = regexp.MustCompile(`^P(?:([0-9]+)Y)?(?:([0-9]+)M)?(?:([0-9]+)W)?(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:\.([0-9]+))?S)?)?$`)

// iso8601Units are the lengths of what iso8601 finds, but for the fraction.
var iso8601Units = []time.Duration{365 * day, 30 * day, 7 * day, day, time.Hour, time.Minute, time.Second}

// maxISO8601 is more characters than anybody writes.
const maxISO8601 = 65

// ParseISO8601 reads an ISO 8601 duration. Years and months are 365 and 30 days, as in .NET. A
// duration beyond time.Duration becomes the longest one: nothing here tells 292 years from forever.
// It is false for text that is no duration, or a negative one.
func ParseISO8601(s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if len(s) > maxISO8601 || strings.HasSuffix(s, "P") || strings.HasSuffix(s, "T") {
		return 0, false
	}
	found := iso8601.FindStringSubmatch(s)
	if found == nil {
		return 0, false
	}
	counts, fraction := found[1:len(iso8601Units)+1], found[len(iso8601Units)+1]
	total := time.Duration(digits((fraction + "000000000")[:9]))
	for i, unit := range iso8601Units {
		total = add(total, times(counts[i], unit))
	}
	return total, true
}

// times is n units, where n is digits or "".
func times(n string, unit time.Duration) time.Duration {
	if n == "" {
		return 0
	}
	count, err := strconv.ParseInt(n, 10, 64)
	if err != nil || count > math.MaxInt64/int64(unit) { // more than fit
		return math.MaxInt64
	}
	return time.Duration(count) * unit
}

func add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// FormatISO8601 writes d, which is not negative, as the service does: in days,
// hours, minutes and seconds, to a tick of 100 ns.
func FormatISO8601(d time.Duration) string {
	if d < 100 {
		return "PT0S"
	}
	var s strings.Builder
	s.WriteByte('P')
	part := func(letter byte, length time.Duration) {
		if n := d / length; n > 0 {
			s.WriteString(strconv.FormatInt(int64(n), 10))
			s.WriteByte(letter)
			d %= length
		}
	}
	part('D', day)
	if d >= 100 {
		s.WriteByte('T')
	}
	part('H', time.Hour)
	part('M', time.Minute)
	if d >= 100 {
		ticks := strconv.FormatInt(int64(d%time.Second/100)+10_000_000, 10)[1:]
		s.WriteString(strings.TrimRight(strings.TrimRight(strconv.FormatInt(int64(d/time.Second), 10)+"."+ticks, "0"), "."))
		s.WriteByte('S')
	}
	return s.String()
}

// Format writes d as people do, and as Parse reads it: 90s as 1m30s, 12h, and from two days on 30d or
// 2d12h.
func Format(d time.Duration) string {
	days, rest := d/day, d%day
	if -2 < days && days < 2 {
		days, rest = 0, d
	}
	text := rest.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	switch {
	case days == 0:
		return text
	case rest == 0:
		return fmt.Sprintf("%dd", days)
	}
	return fmt.Sprintf("%dd%s", days, strings.TrimPrefix(text, "-"))
}

// FormatRounded writes d with two or three digits that matter.
func FormatRounded(d time.Duration) string {
	unit := time.Hour
	switch long := d.Abs(); {
	case long < 10*time.Second:
		unit = time.Millisecond
	case long < time.Hour:
		unit = time.Second
	case long < 2*day:
		unit = time.Minute
	}
	return Format(d.Round(unit))
}

// RoundUp rounds a time to live up to whole milliseconds, as Service Bus does. One that is too long
// for that is rounded down.
func RoundUp(d time.Duration) time.Duration {
	whole := d.Truncate(time.Millisecond)
	if whole >= d || whole > math.MaxInt64-time.Millisecond {
		return whole
	}
	return whole + time.Millisecond
}

// Shorter returns the shorter of two times to live, where 0 means unlimited.
func Shorter(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

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
