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
