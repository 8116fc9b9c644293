// SPDX-License-Identifier: Apache-2.0

// Package racetest says whether the race detector watches a test, at eight times the price. What
// shows no more races when it is large is small then, or left out. `make test` runs the packages
// that use this package without the detector, too.
package racetest

import "testing"

// Skip leaves a test out while the detector watches, and says why.
func Skip(t testing.TB, why string) {
	t.Helper()
	if Enabled {
		t.Skip("not under the race detector: " + why)
	}
}

// Sized is n, or few while the detector watches.
func Sized(n, few int) int {
	if Enabled {
		return few
	}
	return n
}
