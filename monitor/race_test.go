// SPDX-License-Identifier: Apache-2.0

//go:build race

package monitor_test

// raced: the race detector watches, at eight times the price. Races show in small scenes as in
// large ones.
const raced = true
