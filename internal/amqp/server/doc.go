// SPDX-License-Identifier: Apache-2.0

// Package server is AMQP 1.0 seen from the server: the state machines of connections, sessions and
// links, without a word of what the messages mean. A [Handler] gives them a meaning.
//
// A connection has two goroutines and one mutex:
//
//	socket ─▶ read loop ─▶ state machines ─▶ handler ─┐
//	                             │                    │ Settle, Post, Drained, Detach …
//	                             ▼                    │
//	socket ◀── writer ◀──── output buffer ◀───────────┴── SendOut, from any other goroutine
//
// The read loop never writes, so a peer that writes from its own read loop over a transport without
// buffers cannot deadlock with it. Everything is encoded into the output buffer; what is queued
// during one write goes out with the next. Dispositions and credit are not encoded when they fall
// due but when the frames at hand have been read, or by the writer while the read loop waits: one
// frame then covers many deliveries.
//
// Nothing grows without bound. SendOut waits when the peer does not read; beyond a higher mark the
// read loop waits too, so that questions stop when answers are not taken; a write that makes no
// progress ends the connection. Frames, messages, unfinished messages, channels, links, unsettled
// and posted deliveries, connections, the handshake and silence have limits, most of them in
// [Config]. Until the handler calls [Conn.Admit], a peer of whom tokens are asked may have less of
// everything, and all such peers together have one bound: see accept.Unauthenticated.
//
// Links are attached by the peer only. They are not resumed: when a link is detached, suspended or
// not, what was unsettled on it is forgotten here and left to the handler. A second attach of a
// name that is attached steals the link.
//
// The spec is cited as part and section of OASIS AMQP 1.0; "part 2 section 5.6" is 2.5.6 there.
package server
