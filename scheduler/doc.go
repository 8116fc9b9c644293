// SPDX-License-Identifier: Apache-2.0

// Package scheduler is the promise: it turns "this message has to be received by
// then" into a companion, a message on the monitor queue that the broker itself
// holds back until the deadline.
//
//	refs of many sends ─▶ pending ─▶ one companion per entity and slot ─▶ one transfer
//
// A companion is an alarm clock, not a verdict. It says when to look and what to
// look for; what became of the work message is judged by the monitor, from the
// stamps of the broker. So a companion that comes twice, late or for nothing costs
// a look and never a message.
//
// Writing is batched without waiting: what arrives while transfers are in flight
// leaves together with the next one. A caller is told that its companion is safe
// only when the broker has accepted it.
//
// The scheduled enqueue time of a companion is reckoned on the broker's clock. Its
// distance from ours is measured with a message that is scheduled, peeked and
// cancelled (see clock.go); where the rights do not allow that, our own clock has to
// do, and companions say so by leaving the window of their references open.
package scheduler
