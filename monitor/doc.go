// SPDX-License-Identifier: Apache-2.0

// Package monitor checks messages at their deadlines, expires those that nobody received in
// time, and notifies people and systems of them: read, peek, nudge, peek.
//
//	companion is due ─▶ rule ─read─▶ watch ─▶ its deadline ─▶ round ─┬─▶ in flight ─▶ round
//	                     │                                           ├─▶ missed ─▶ notify
//	                     └─▶ nothing there: received in time         └─▶ gone ─▶ letters once more
//
// A watch has one of these states, and one function moves it on ([state.after]):
//
//	waiting ──overdue, and left in place──▶ in flight ──found early──▶ waiting
//	   └──────────────┬────────────────────────┘
//	              not found ──▶ gone ──still no letter──▶ unexplained ──▶ met, or unknown
//	    any of these ──dead letter, or evidence──▶ missed ──▶ notify
//	    any of these ──dead letter of a consumer──▶ met
//
// Read worker.go, rule.go, read.go, round.go, expire.go, conclude.go and notify.go in this order:
//
//   - Due: a companion is a scheduled message on the monitor queue. The broker activates it
//     shortly before the deadline, and package intake receives it under a lock. The [Worker] makes
//     rules of it, which say for which messages it stands, and hands them to the goroutine of the
//     work queue.
//   - Read: the windows of all rules in hand are read once, each message is tested against the
//     rules, and each match is one watch. A further companion of the same message attaches to it.
//   - Round: at the deadline, a receiver is open; a peek shows its message, a nudge makes the
//     broker expire what is overdue, dead letters show what that did, and a second peek shows the
//     rest. Whether a message is overdue follows from the stamps that the broker made. A scan
//     expires by hand what a nudge cannot.
//   - Where dead letters are known to stay, nudges need no peek: see fast.go.
//   - Notify: every sink gets one event for each missed deadline, through package notify.
//
// A companion is completed last, when each of its messages is received, expired and
// notified, or named by another companion. If a process stops before, the lock on the companion
// lapses, and the next worker checks again.
//
// A topic has no messages of its own: its companions go to its subscriptions, which are checked
// like queues. A message that its queue forwarded is searched for at the destination.
package monitor
