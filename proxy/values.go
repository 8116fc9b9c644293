// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"math"
	"net/http"
	"regexp"
	"strconv"
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

var (
	isoDuration = regexp.MustCompile(`^P(?:([0-9.]+)W|(?:([0-9.]+)D)?(T(?:([0-9.]+)H)?(?:([0-9.]+)M)?(?:([0-9.]+)S)?)?)$`)
	// timeSpan is .NET's: [d.]hh:mm[:ss[.fffffff]].
	timeSpan = regexp.MustCompile(`^(?:([0-9]{1,8})\.)?([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2}(?:\.[0-9]{1,7})?))?$`)

	errNoDuration = errors.New("proxy: not a duration")
)

// longestSpan is how long a duration from outside may be written. It keeps the digits few.
const longestSpan = 64

// parseDuration reads a duration, written as in Go (1m30s) or in ISO 8601 (PT1M30S). Years and
// months have no fixed length and are refused. It may be negative or zero in Go's form.
func parseDuration(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if len(s) > longestSpan {
		return 0, errNoDuration
	}
	if !strings.HasPrefix(s, "P") {
		return time.ParseDuration(s)
	}
	g := isoDuration.FindStringSubmatch(s)
	if g == nil || strings.HasSuffix(s, "T") || s == "P" {
		return 0, errNoDuration
	}
	d, ok := sum(g[1], 7*24*time.Hour, g[2], 24*time.Hour, g[4], time.Hour, g[5], time.Minute, g[6], time.Second)
	if !ok {
		return 0, errNoDuration
	}
	return d, nil
}

// parseTimeSpan reads a span as .NET writes it, 1.02:03:04.5 for a day and more. The
// longest TimeSpan of .NET, and whatever a Duration cannot hold, is the longest Duration.
func parseTimeSpan(s string) (d time.Duration, ok bool) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "P") { // what the administration API writes
		d, err := parseDuration(s)
		return d, err == nil
	}
	g := timeSpan.FindStringSubmatch(s)
	if g == nil || len(s) > longestSpan {
		return 0, false
	}
	return sum(g[1], 24*time.Hour, g[2], time.Hour, g[3], time.Minute, g[4], time.Second)
}

// sum adds up pairs of a decimal number, as text, and its unit. A sum that a Duration
// cannot hold is the longest Duration. ok is false when a text is no number.
func sum(pairs ...any) (d time.Duration, ok bool) {
	total := 0.0
	exact := time.Duration(0)
	for i := 0; i < len(pairs); i += 2 {
		text, unit := pairs[i].(string), pairs[i+1].(time.Duration)
		if text == "" {
			continue
		}
		whole, fraction, _ := strings.Cut(text, ".")
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || whole == "" {
			return 0, false
		}
		total += f * float64(unit)
		if total >= math.MaxInt64 {
			return math.MaxInt64, true
		}
		n, err := strconv.ParseInt(whole, 10, 64)
		if err != nil {
			return 0, false
		}
		// The whole part is exact; the fraction needs no more than a float gives.
		exact += time.Duration(n) * unit
		if fraction != "" {
			part, err := strconv.ParseFloat("0."+fraction, 64)
			if err != nil {
				return 0, false
			}
			exact += time.Duration(math.Round(part * float64(unit)))
		}
	}
	return exact, true
}
