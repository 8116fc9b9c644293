// SPDX-License-Identifier: Apache-2.0

// Package relay stands between an AMQP client and a namespace: one connection
// of the client to one upstream connection, performative by performative.
//
//	client ⇄ side ─ session ─ link ─ session ─ side ⇄ upstream
//
// What belongs to a hop is the relay's own on each side: headers, SASL, opens,
// channels, handles, frame sizes, session windows, transfer-ids, delivery-ids,
// keep-alives. What belongs to a link passes from end to end: attach, credit,
// drain, delivery tags, states, detach. So back pressure is the broker's: a
// transfer waits here only while the session window of the other side is
// closed, its output is full or a [Watcher] holds it, and the window of the
// side it came from opens again only as transfers leave. What waits for a receiver
// that goes is released upstream, because nobody has seen it.
//
// Nothing is assembled, but for the deliveries of links that have a [Watcher]
// and of nodes that the relay answers itself.
//
// Each side has a goroutine that reads and one that writes. A frame that was
// read is handled at once under the mutex of the pair, which is never held
// while anything blocks; what it results in is appended to the output of the
// side it is for. A read loop that comes to rest gives that to the socket, as much
// as it takes at once; what may have to wait is for the side's writer.
package relay
