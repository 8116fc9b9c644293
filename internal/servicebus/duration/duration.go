// SPDX-License-Identifier: Apache-2.0

// Package duration reads durations as people, configuration and Service Bus write them, writes
// those of Service Bus, and compares spans and times by its rules.
package duration

import (
	"errors"
	"math"
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

// ParseISO8601 reads an ISO 8601 duration. Years and months are 365 and 30 days, as in .NET. A
// duration beyond time.Duration becomes the longest one: nothing here tells 292 years from forever.
// It is false for text that is no duration, or a negative one.
func ParseISO8601(s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	rest, ok := strings.CutPrefix(s, "P")
	if !ok || len(rest) > 64 {
		return 0, false
	}
	units := []unit{{'Y', 365 * day}, {'M', 30 * day}, {'W', 7 * day}, {'D', day}}
	var total time.Duration
	for seen, inTime := false, false; ; seen = true {
		if !inTime && strings.HasPrefix(rest, "T") {
			rest, inTime = rest[1:], true
			units = []unit{{'H', time.Hour}, {'M', time.Minute}, {'S', time.Second}}
			if rest == "" {
				return 0, false
			}
		}
		if rest == "" {
			return total, seen
		}
		i := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if i <= 0 {
			return 0, false
		}
		// Each unit at most once, in their order, and a fraction for seconds only.
		for len(units) > 0 && units[0].letter != rest[i] {
			units = units[1:]
		}
		if len(units) == 0 {
			return 0, false
		}
		d, ok := units[0].times(rest[:i])
		if !ok {
			return 0, false
		}
		total = add(total, d)
		units, rest = units[1:], rest[i+1:]
	}
}

type unit struct {
	letter byte
	length time.Duration
}

// times is n units; n may have a fraction where the unit is a second.
func (u unit) times(n string) (time.Duration, bool) {
	whole, fraction, has := strings.Cut(n, ".")
	if has && (u.length != time.Second || fraction == "" || strings.Contains(fraction, ".")) {
		return 0, false
	}
	count, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		if whole == "" || strings.Trim(whole, "0123456789") != "" {
			return 0, false
		}
		return math.MaxInt64, true // more digits than fit
	}
	if count > math.MaxInt64/int64(u.length) {
		return math.MaxInt64, true
	}
	nanos, err := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	if err != nil {
		return 0, false
	}
	return add(time.Duration(count)*u.length, time.Duration(nanos)), true
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
