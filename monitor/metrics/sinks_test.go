// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A sink that only asks for pauses, as one does that is overloaded for hours, failed for nobody.
func TestASinkFailsWhileItTakesNothing(t *testing.T) {
	refused := errors.New("500 Internal Server Error")
	pause := func(d time.Duration) error {
		return fmt.Errorf("503: %w", &backoff.RetryAfterError{Duration: d})
	}
	type step struct {
		after time.Duration
		err   error
	}
	for name, tt := range map[string]struct {
		steps []step
		then  time.Duration // after the last
		want  int
	}{
		"nothing was sent":                       {},
		"it takes events":                        {steps: []step{{0, nil}}},
		"it refuses one":                         {steps: []step{{0, refused}}, want: 1},
		"it takes one again":                     {steps: []step{{0, refused}, {time.Minute, nil}}},
		"what it refused was not sent again":     {steps: []step{{0, refused}}, then: 8 * time.Minute},
		"it asks for pauses":                     {steps: []step{{0, pause(time.Minute)}, {time.Minute, pause(time.Minute)}}},
		"it asks for pauses for long":            {steps: []step{{0, pause(6 * time.Minute)}, {6 * time.Minute, pause(6 * time.Minute)}}, then: 5 * time.Minute, want: 1},
		"it asks for a long pause":               {steps: []step{{0, pause(time.Hour)}}, then: 11 * time.Minute, want: 1},
		"it takes some between pauses":           {steps: []step{{0, pause(time.Minute)}, {9 * time.Minute, nil}, {time.Minute, pause(time.Minute)}}, then: 4 * time.Minute},
		"it asks for a pause twice a day":        {steps: []step{{0, pause(time.Minute)}, {12 * time.Hour, pause(time.Minute)}}, then: time.Minute},
		"another process sent what it had asked": {steps: []step{{0, pause(6 * time.Minute)}, {6 * time.Minute, pause(6 * time.Minute)}}, then: 14 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := New(nil, nil, nil, nil)
				m.ShowSink("hook")
				failures := 0
				for _, s := range tt.steps {
					time.Sleep(s.after)
					m.Alert("hook", s.err)
					if errors.Is(s.err, refused) {
						failures++
					}
				}
				time.Sleep(tt.then)
				want := fmt.Sprintf("# HELP overdue_sink_failing %s\n# TYPE overdue_sink_failing gauge\noverdue_sink_failing{sink=\"hook\"} %d\n", failingHelp, tt.want)
				if err := testutil.CollectAndCompare(&m.sinks, strings.NewReader(want)); err != nil {
					t.Error(err)
				}
				if got := testutil.ToFloat64(m.alerts.WithLabelValues("hook", "error")); got != float64(failures) {
					t.Errorf("%v deliveries failed, want %d: a pause is no failure", got, failures)
				}
			})
		})
	}
}
