// SPDX-License-Identifier: Apache-2.0

// Package client is an AMQP client that sends: it opens a connection, puts tokens to $cbs, attaches
// senders and returns the outcome of each transfer. It receives only the answers of $cbs.
//
// # Who does what
//
// The goroutine that calls Send encodes its transfer under the mutex of the connection and writes
// it. If another goroutine is writing, that one writes the transfer too. One goroutine for each
// connection reads, and gives every outcome to the Send that waits for it. So a transfer costs one
// write, one read and one wake-up, and no goroutine passes it on. The reader never writes, because
// a peer that does not read must not keep it from reading: answers to the peer are rare, and a new
// goroutine writes each.
//
// # States
//
//	begin sent ── begun ── end sent or received ── over
//	attach sent ── attached ── detached
//	delivery: blocked (no credit, no window, or much to write) ── unsettled ── settled
//
// When a link, a session or the connection ends, its deliveries are settled with an EndedError.
//
// # Bounds
//
// A frame of the peer has 64 KiB at most, an answer of $cbs as well. The peer can make no session
// and no link. maxQueued and one frame bound the queued output.
package client
