// SPDX-License-Identifier: Apache-2.0

//go:build !race

package racetest

// Enabled reports whether the race detector watches.
const Enabled = false
