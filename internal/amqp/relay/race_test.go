// SPDX-License-Identifier: Apache-2.0

//go:build race

package relay

const raceEnabled = true

// fewer is how many repetitions a test makes under the race detector, where each costs ten times as
// much. `make test` makes all of them without it.
func fewer(_, few int) int { return few }
