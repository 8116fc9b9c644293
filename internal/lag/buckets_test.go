// SPDX-License-Identifier: Apache-2.0

package lag

import (
	"math"
	"slices"
	"testing"
	"time"
)

// quantile is what histogram_quantile of Prometheus calculates if one span was measured, as often as
// you like.
func quantile(q float64, span time.Duration) time.Duration {
	b := Buckets()
	i, _ := slices.BinarySearch(b, span.Seconds())
	from := 0.0
	if i > 0 {
		from = b[i-1]
	}
	return time.Duration((from + (b[i]-from)*q) * float64(time.Second))
}

func TestAQuantileIsNearWhatWasMeasured(t *testing.T) {
	for span := 101 * time.Millisecond; span < 7*24*time.Hour; span += span / 97 {
		allowed := 0.5
		if span > time.Second && span <= time.Hour {
			allowed = 0.2
		}
		for _, q := range []float64{0.01, 0.5, 0.99} {
			got := quantile(q, span)
			if off := math.Abs(float64(got-span)) / float64(span); off > allowed+0.01 { // a label has three digits
				t.Errorf("the quantile %v of %v reads as %v, which is %.1f %% off, want %v %% at most", q, span, got, 100*off, 100*allowed)
			}
		}
	}
	for span, want := range map[time.Duration][2]time.Duration{
		60*time.Second + 200*time.Millisecond: {60 * time.Second, 72 * time.Second}, // a process that was frozen for a minute
		29*time.Second + 970*time.Millisecond: {24 * time.Second, 30 * time.Second}, // settled at once, with a deadline of 30 s
		14 * time.Millisecond:                 {10 * time.Millisecond, 25 * time.Millisecond},
		20*time.Minute + time.Second:          {17 * time.Minute, 24 * time.Minute},
		59*time.Minute + 59*time.Second:       {50 * time.Minute, time.Hour},
		26 * time.Hour:                        {24 * time.Hour, 36 * time.Hour},
	} {
		for _, q := range []float64{0.01, 0.5, 0.99} {
			if got := quantile(q, span); got < want[0] || got > want[1] {
				t.Errorf("the quantile %v of %v reads as %v, want %v to %v", q, span, got, want[0], want[1])
			}
		}
	}
}

func TestBucketsAscendAndAreFew(t *testing.T) {
	b := Buckets()
	if !slices.IsSorted(b) || len(slices.Compact(slices.Clone(b))) != len(b) || len(b) > 80 {
		t.Errorf("%d buckets: %v", len(b), b)
	}
	for _, former := range []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600} {
		if !slices.Contains(b, former) {
			t.Errorf("there is no bucket up to %v, which queries ask for", former)
		}
	}
}
