// SPDX-License-Identifier: Apache-2.0

// Package client is the client side of AMQP 1.0: it opens a connection, sends, receives with exact
// credit, and asks nodes such as $cbs and $management. It opens a connection of its own ([Open]), or
// works over the transport of another, one session at a time ([Over]).
//
// # Who does what
//
// The goroutine that calls Send encodes its transfer under the mutex of the connection and writes
// it. If another goroutine is writing, that one writes the transfer too. One goroutine for each
// connection reads, and gives every outcome to the Send that waits for it. So a transfer costs one
// write, one read and one wake-up, and no goroutine passes it on. Credit, drains and settlements
// are written in the same way, so what a caller writes reaches the peer in that order. The reader
// never writes, because a peer that does not read must not keep it from reading. Answers to the
// peer are rare, and a new goroutine writes each (package transport).
//
// # States
//
//	begin sent ── begun ── end sent or received ── over
//	attach sent ── attached ── detached
//	delivery: blocked (no credit, no window, or much to write) ── unsettled ── settled
//	message of a Receiver: partial ── arrived ── taken ── settling ── settled
//
// When a link, a session or the connection ends, its deliveries are settled with an EndedError.
//
// The first frames over a session do not wait for its begin, nor those of a link in it (part 2
// section 2.5.1). So a link takes one round trip to open.
//
// # Bounds
//
// A frame of the peer has 64 KiB at most, and a message maxMessage, or as much as its Receiver
// keeps. The peer sends no more messages than the caller grants. It can make no session and no
// link. maxQueued and one frame bound the queued output.
package client
