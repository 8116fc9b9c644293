// SPDX-License-Identifier: Apache-2.0

package lag

import (
	"testing"
	"time"
)

func TestPercentilesAreLagsThatWereMeasured(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[99-i] = time.Duration(i+1)*time.Millisecond + 4*time.Microsecond
	}
	for name, c := range map[string]struct {
		lags []time.Duration
		want Milliseconds
	}{
		"none":              {want: Milliseconds{}},
		"one":               {[]time.Duration{1234 * time.Microsecond}, Milliseconds{P50: 1.23, P99: 1.23, Max: 1.23}},
		"two, out of order": {[]time.Duration{3 * time.Second, time.Second}, Milliseconds{P50: 1000, P99: 3000, Max: 3000}},
		"a hundred":         {hundred, Milliseconds{P50: 50, P99: 99, Max: 100}},
	} {
		if got := Of(c.lags); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestOnlyALagBelowZeroIsEarly(t *testing.T) {
	if got := Early([]time.Duration{-1, 0, 1, -time.Second}); got != 2 {
		t.Errorf("Early = %d, want 2", got)
	}
}
