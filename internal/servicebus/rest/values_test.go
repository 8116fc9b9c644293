// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"testing"
	"time"
)

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
