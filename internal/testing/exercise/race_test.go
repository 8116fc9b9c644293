// SPDX-License-Identifier: Apache-2.0

//go:build race

package exercise

// raced: the race detector watches, at eight times the price. `make test` runs what it leaves out
// without it.
const raced = true
