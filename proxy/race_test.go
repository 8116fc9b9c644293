// SPDX-License-Identifier: Apache-2.0

//go:build race

package proxy

// raced: the race detector watches, at eight times the price. `make test` runs what it leaves out
// without it.
const (
	raced = true
	soaks = 20 // seeds of the soak
)
