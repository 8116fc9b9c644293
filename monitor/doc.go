// SPDX-License-Identifier: Apache-2.0

// Package monitor is the reckoning: it takes the companions that have become due,
// checks the messages that they name, expires those that nobody has received in
// time, and tells.
//
//	companion due ─▶ look ─┬─▶ not due   ─▶ check again at its deadline
//	                       ├─▶ gone      ─▶ in the dead-letter queue? ─┬─▶ no:  met
//	                       │                     ▲                     └─▶ yes: missed ─▶ tell
//	                       └─▶ overdue   ─▶ expire ─┬─▶ it went
//	                                                └─▶ it stayed: in flight ─▶ check again soon
//
// A topic has no messages of its own: what comes for it is handed to each of its subscriptions, which are checked
// as queues are. What has left for where its entity forwards is looked for there.
//
// One pass over an entity serves all of its companions that are due. What a pass
// knows is what the broker has stamped; the companion only said when to check and
// where. A companion is completed last, when every message that it names is settled,
// expired and told, or named by a companion rewritten. Whatever dies before that, the
// companion comes back and the pass is repeated.
//
// A peek cannot tell whether a message is locked. So the monitor does not ask: it
// tries to expire, and what is still there afterwards is held by a consumer. It keeps
// such a companion under its lock and checks again until the message is settled, or comes
// back and can be expired at once.
package monitor
