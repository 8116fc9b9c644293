// SPDX-License-Identifier: Apache-2.0

// Package lag sums up how long after their deadlines messages were dead-lettered, and has the
// buckets of such spans.
package lag

import (
	"math"
	"slices"
	"time"
)

// Milliseconds are percentiles of lags, as commands print them.
type Milliseconds struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Of sorts lags and takes their percentiles by nearest rank, so each is a lag that was
// measured. Without lags all are zero.
func Of(lags []time.Duration) Milliseconds {
	if len(lags) == 0 {
		return Milliseconds{}
	}
	slices.Sort(lags)
	rank := func(p float64) float64 {
		i := max(0, int(math.Ceil(p*float64(len(lags))))-1)
		return float64(lags[i].Round(10*time.Microsecond).Microseconds()) / 1000
	}
	return Milliseconds{P50: rank(0.5), P99: rank(0.99), Max: rank(1)}
}

// Early counts the messages that were dead-lettered before their deadline.
func Early(lags []time.Duration) (n int) {
	for _, lag := range lags {
		if lag < 0 {
			n++
		}
	}
	return n
}

// Buckets are those of the histograms of lags and of other spans before or after a deadline, in
// seconds. A quantile that Prometheus calculates lies in the bucket of what was measured. So it is
// off by a fifth at most between 1 s and 1 h, and the median of equal spans by a tenth. Each entity
// has as many series, so the steps are no smaller than that.
func Buckets() []float64 {
	return []float64{
		.001, .005, .01, .025, .05, .1, .136, .184, .25, .354, .5, .707,
		1, 1.16, 1.36, 1.58, 1.84, 2.15, 2.5, 2.97, 3.54, 4.2, 5, 5.95, 7.07, 8.41,
		10, 11.7, 13.7, 16, 18.7, 21.9, 25.6, 30, 35.7, 42.4, 50.5,
		60, 71.7, 85.8, 103, 123, 147, 175, 210, 251, 300, 358, 428, 511, 610, 729, 870, 1040, 1240, 1480, 1770, 2110, 2520, 3010,
		3600, 5360, 7970, 11900, 17600, 26200, 39000, 58100,
		86400, 128000, 188000, 278000, 410000, 604800,
	}
}
