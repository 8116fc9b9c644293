// SPDX-License-Identifier: Apache-2.0

package lag

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
