// SPDX-License-Identifier: Apache-2.0

//go:build !race

package monitor_test

const raced = false
