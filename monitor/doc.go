// SPDX-License-Identifier: Apache-2.0

// Package monitor checks messages at their deadlines, expires those that nobody received in
// time, and notifies people and systems of them.
//
//	companion is due ──▶ check ─┬─▶ not due ──▶ check again at the deadline
//	                    ▲       ├─▶ gone ─────▶ what shows why? ─┬─▶ nothing: met, or unknown
//	                    │       │                    ▲           └─▶ evidence: missed ──▶ notify ──▶ done
//	                    │       └─▶ overdue ──▶ expire ─┬─▶ gone
//	                    └──────────── in flight ◀───────┘
//
// A watched deadline has one of these states, and one function moves it on (state.go):
//
//	waiting ──found overdue──▶ overdue ──expires soon──▶ expiring
//	   ▲                         │  │                       │ found overdue
//	   │ found early             │  └──left in place──▶ in flight ──found overdue──▶ overdue
//	   └──── any of these ──not found──▶ gone ──found again──▶ waiting or overdue
//	         any of these ──evidence───▶ missed ──▶ notify ──▶ done
//
// Read worker.go, check.go, expire.go and notify.go in this order:
//
//   - Due: a companion is a scheduled message on the monitor queue. The broker activates it
//     shortly before the deadline, and package intake receives it under a lock. The [Worker] makes
//     a watch of each message that the companion names, and hands it to the goroutine of the work
//     queue.
//   - Check: peeks find the messages. Whether one is overdue follows from the stamps that the
//     broker made. The companion only says when and where to check. One search serves all
//     companions of a work queue that are due.
//   - Expire: by a nudge, which makes the broker expire what is overdue, or by a scan, which
//     receives from the head, dead-letters what is overdue and releases the rest. A peek does not
//     show locks. So a message that is still there after an attempt to expire it is in flight: a
//     consumer holds it. The monitor checks it again until it is settled or given back.
//   - Notify: every sink gets one event for each missed deadline, through package notify.
//
// A companion is completed last, when each of its messages is received, expired and
// notified, or named by another companion. If a process stops before, the lock on the companion
// lapses, and the next worker checks again.
//
// A topic has no messages of its own: its companions go to its subscriptions, which are checked
// like queues. A message that its queue forwarded is searched for at the destination.
package monitor
