// SPDX-License-Identifier: Apache-2.0

// Package relay connects each AMQP client to a namespace over one upstream
// connection, performative by performative.
//
//	client ⇄ side ─ session ─ link ─ session ─ side ⇄ upstream
//
// Each side has its own state of the hop: headers, SASL, opens, channels, handles,
// frame sizes, session windows, transfer-ids, delivery-ids, keep-alives. The state
// of a link passes from end to end: attach, credit, drain, delivery tags, states,
// detach. So back pressure comes from the broker. A transfer waits here only while
// the session window of the other side is closed, its output is full or a
// [Watcher] holds it. The window of the sender's side opens again only as transfers
// leave. When a receiver goes, its waiting deliveries are released upstream,
// because the receiver has not seen them.
//
// The relay assembles only the deliveries of links that have a [Watcher], and of
// nodes that it answers itself.
//
// Each side has a goroutine that reads. It handles each frame at once under the mutex
// of the connection, which is never held while anything blocks, and appends the
// results to the output of their side. When it comes to rest it writes as much as the
// socket takes at once, and leaves the rest, which may block, to a writer (package
// transport).
package relay
