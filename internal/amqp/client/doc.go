// SPDX-License-Identifier: Apache-2.0

// Package client is the client's end of an AMQP connection that sends: it opens the connection,
// puts tokens to $cbs, attaches senders and returns the outcome of each transfer. It receives
// nothing but the answers of $cbs.
//
// # Who does what
//
// The goroutine that calls Send encodes its transfer under the mutex of the connection and writes it.
// If another goroutine is writing, that one takes the transfer along. One goroutine for each
// connection reads, and gives every outcome to the Send that waits for it. So a transfer costs one
// write, one read and one wake-up, and no goroutine passes it on. The reader never writes, because
// a peer that does not read must not keep it from reading: what it has to answer is rare, and gets a
// goroutine until it is written.
//
// # States
//
//	begin sent ── begun ── end sent or received ── over
//	attach sent ── attached ── detached
//	delivery: blocked (no credit, no window, or much to write) ── unsettled ── settled
//
// An end of a link, a session or the connection settles what it holds with an EndedError.
//
// # Bounds
//
// A frame of the peer has 64 KiB at most, an answer of $cbs as well. The peer can make no session
// and no link. What waits to be written is bounded by maxQueued and one frame.
package client
