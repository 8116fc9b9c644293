// SPDX-License-Identifier: Apache-2.0

//go:build !race

package relay

const raceEnabled = false

// fewer is how many repetitions a test makes: all, without the race detector.
func fewer(all, _ int) int { return all }
