// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
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
