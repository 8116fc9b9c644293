// SPDX-License-Identifier: Apache-2.0

//go:build !race

package proxy

const (
	raced = false
	soaks = 75
)
