// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestStatedDeadline(t *testing.T) {
	for _, tc := range []struct {
		name       string
		properties map[string]any
		at         time.Time
		within     time.Duration
		err        string
	}{
		{name: "none", properties: map[string]any{"colour": "red"}},
		{name: "RFC 3339", properties: map[string]any{"overdue-deadline": "2026-01-31T13:00:00+01:00"}, at: noon},
		{name: "timestamp", properties: map[string]any{"overdue-deadline": noon}, at: noon},
		{name: "Go duration", properties: map[string]any{"overdue-within": "1m30s"}, within: 90 * time.Second},
		{name: "ISO duration", properties: map[string]any{"overdue-within": "PT1M30S"}, within: 90 * time.Second},
		{name: "ISO days", properties: map[string]any{"overdue-within": "P1DT2H"}, within: 26 * time.Hour},
		{name: "days", properties: map[string]any{"overdue-within": "7d"}, within: 7 * 24 * time.Hour},
		{name: "ISO fraction", properties: map[string]any{"overdue-within": "PT0.5S"}, within: 500 * time.Millisecond},
		{name: "a span", properties: map[string]any{"overdue-within": 90 * time.Second}, within: 90 * time.Second},
		{name: "a span as .NET writes it", properties: map[string]any{"overdue-within": "1.02:00:00.5"}, within: 26*time.Hour + time.Second/2},
		{name: "a negative span", properties: map[string]any{"overdue-within": -time.Second}, err: "more than 0"},
		{name: "the longest span", properties: map[string]any{"overdue-within": time.Duration(math.MaxInt64)}, err: "100 years"},
		{name: "the longest span as .NET writes it", properties: map[string]any{"overdue-within": "10675199.02:48:05.4775807"}, err: "100 years"},
		{name: "an instant where a span belongs", properties: map[string]any{"overdue-within": noon}, err: "time.Time"},
		{name: "a span where an instant belongs", properties: map[string]any{"overdue-deadline": time.Minute}, err: "time.Duration"},
		{name: "CloudEvents", properties: map[string]any{"ce-expirytime": "2026-01-31T12:00:00Z"}, at: noon},
		{name: "instant before duration", properties: map[string]any{"overdue-within": "1s", "overdue-deadline": noon}, at: noon},
		{name: "duration before CloudEvents", properties: map[string]any{"overdue-within": "1s", "ce-expirytime": noon}, within: time.Second},
		{name: "no instant", properties: map[string]any{"overdue-deadline": "tomorrow"}, err: `"tomorrow"`},
		{name: "number", properties: map[string]any{"overdue-deadline": int64(5)}, err: "int64"},
		{name: "no unit", properties: map[string]any{"overdue-within": "30"}, err: `"30"`},
		{name: "negative", properties: map[string]any{"overdue-within": "-30s"}, err: "more than 0"},
		{name: "nothing", properties: map[string]any{"overdue-within": "0s"}, err: "more than 0"},
		{name: "for ever", properties: map[string]any{"overdue-within": "P36501D"}, err: "100 years"},
		{name: "long text", properties: map[string]any{"overdue-within": strings.Repeat("x", 1000)}, err: "…"},
		{name: "bare P", properties: map[string]any{"overdue-within": "P"}, err: "duration"},
		{name: "bare PT", properties: map[string]any{"overdue-within": "PT"}, err: "duration"},
		{name: "ISO with Go units", properties: map[string]any{"overdue-within": "PT5ms"}, err: "duration"},
		{name: "NaN days", properties: map[string]any{"overdue-within": "PNaND"}, err: "duration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at, within, err := StatedDeadline(func(name string) any { return tc.properties[name] })
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || len(err.Error()) > 200 {
					t.Errorf("StatedDeadline error = %v, want a short one with %q", err, tc.err)
				}
				return
			}
			if err != nil || !at.Equal(tc.at) || within != tc.within {
				t.Errorf("StatedDeadline = %v, %v, %v, want %v, %v", at, within, err, tc.at, tc.within)
			}
		})
	}
}
