// SPDX-License-Identifier: Apache-2.0

// Package simulate plays a fleet on fake time, to check what `overdue doctor plan` computes where no
// benchmark reaches: 1,000 proxies, 50 monitors, 200 entities, 100,000 deadlines a second.
//
// The proxies are real as far as companions go: each has a scheduler of its own, with its slots,
// its transfers and its companions as they are encoded. The monitor queue is a simulated one, and
// monitors are counted and not run. For each companion they get, the simulation adds up the
// operations that the benchmarks have counted for one.
package simulate
