// SPDX-License-Identifier: Apache-2.0

package lag

import (
	"math"
	"strconv"
)

// bounds are in every set of buckets, in seconds: queries ask for them. step is how much larger a
// bucket's bound is at most than the one before it, up to here.
var bounds = []struct{ to, step float64 }{
	{.001, 0}, {.005, 5}, {.01, 2}, {.025, 2.5}, {.05, 2}, {.1, 2},
	{.25, 1.5}, {.5, 1.5}, {1, 1.5},
	{2.5, 1.2}, {5, 1.2}, {10, 1.2}, {30, 1.2}, {60, 1.2}, {300, 1.2}, {3600, 1.2},
	{24 * 3600, 1.5}, {7 * 24 * 3600, 1.5},
}

// Buckets are those of the histograms of lags and of other spans before or after a deadline, in
// seconds. A quantile that Prometheus calculates lies in the bucket of what was measured. So it is
// off by a fifth at most between 1 s and 1 h, and the median of equal spans by a tenth. Each entity
// has as many series, so the steps are no smaller than that.
func Buckets() []float64 {
	all := []float64{bounds[0].to}
	for _, b := range bounds[1:] {
		from := all[len(all)-1]
		steps := math.Ceil(math.Log(b.to/from)/math.Log(b.step) - 1e-9)
		for n := 1.0; n < steps; n++ {
			all = append(all, rounded(from*math.Pow(b.to/from, n/steps)))
		}
		all = append(all, b.to)
	}
	return all
}

// rounded has the three digits of a label that people read.
func rounded(f float64) float64 {
	f, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', 3, 64), 64)
	if err != nil {
		panic(err) // it was formatted just now
	}
	return f
}
