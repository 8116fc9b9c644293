// SPDX-License-Identifier: Apache-2.0

// Package scheduler turns "this message has to be received by then" into a
// companion, a message on the monitor queue that the broker itself holds back
// until the deadline.
//
//	references of many sends ─▶ pending ─▶ one companion per entity and slot ─▶ one transfer
//
// A companion is a wake-up, not a verdict. It says when to check and which
// messages; the monitor judges each work message by the stamps of the broker. So a
// companion that comes twice, late or for nothing costs a check and never a message.
//
//	companion:  pending ─▶ in flight ─▶ on the monitor queue ─▶ due, at the monitor
//	                          │                └─ all its messages are settled ─▶ cancelled
//	                          └─ not accepted ─▶ its callers get the error
//
// Concurrent sends share transfers: what arrives while a transfer is in flight
// leaves with the next one, at the latest when the transfer ends. A caller hears that
// its companion is safe only when the broker has accepted it.
//
// Due times are on the broker's clock. The scheduler measures its distance from ours
// with a message that it schedules, peeks at and cancels (see clock.go). Where the
// rights do not allow that, it uses our own clock, and leaves the windows of references open.
package scheduler
