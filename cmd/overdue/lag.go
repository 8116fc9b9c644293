// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"time"
)

// lagMs is how long after their deadlines messages were dead-lettered, in milliseconds.
type lagMs struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// lagOf sorts lags and takes their percentiles, exactly: by nearest rank. Without lags all are zero.
func lagOf(lags []time.Duration) lagMs {
	if len(lags) == 0 {
		return lagMs{}
	}
	slices.Sort(lags)
	rank := func(p float64) float64 {
		i := max(0, int(math.Ceil(p*float64(len(lags))))-1)
		return float64(lags[i].Round(10*time.Microsecond).Microseconds()) / 1000
	}
	return lagMs{P50: rank(0.5), P99: rank(0.99), Max: rank(1)}
}

// earlyOf counts what was dead-lettered before its deadline.
func earlyOf(lags []time.Duration) (n int) {
	for _, lag := range lags {
		if lag < 0 {
			n++
		}
	}
	return n
}
