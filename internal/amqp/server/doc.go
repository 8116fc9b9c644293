// SPDX-License-Identifier: Apache-2.0

// Package server is the server side of AMQP 1.0: the state machines of connections, sessions and
// links. A [Handler] gives meaning to the messages.
//
// A connection has one mutex, a read loop, and a writer while there is output that the socket does
// not take at once (package transport):
//
//	socket ─▶ read loop ─▶ state machines ─▶ handler ─┐
//	                             │                    │ Settle, Post, Drained, Detach …
//	                             ▼                    │
//	socket ◀── writer ◀──── output buffer ◀───────────┴── SendOut, from any other goroutine
//
// Dispositions and credit are encoded when the buffered input has been read, or by the writer while
// the read loop waits. So one frame covers many deliveries.
//
// Nothing grows without bound. SendOut waits when the peer does not read. Beyond a higher mark the
// read loop waits too, so that a peer which does not read answers can send no more requests. A
// write that makes no progress ends the connection. Frames, messages (each link has one unfinished
// message at most), channels, links, unsettled and posted deliveries, connections, the handshake
// and silence have limits. Most of these are in [Config]. Until the handler calls [Conn.Admit], a
// peer that needs a token has lower limits, and all such peers share one limit: see
// accept.Unauthenticated.
//
// Only the peer attaches links. Links are not resumed: when a link is detached, suspended or not,
// the server drops its unsettled deliveries and leaves them to the handler. A second attach of an
// attached name steals the link.
//
// The spec is cited as part and section of OASIS AMQP 1.0; "part 2 section 5.6" is 2.5.6 there.
package server
