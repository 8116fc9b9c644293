// SPDX-License-Identifier: Apache-2.0

// Package transport is one end of an AMQP 1.0 connection, below its sessions: the socket, the
// handshake, the output, the keep-alive and the end. The client, the server and both sides of the
// relay use it.
//
//	Handshaking ─ opens ─▶ Open ─ our close ─▶ Closing ─ the peer's close, a time-out ─▶ Dead
//
// A connection has a reader and, while there is something to write, a writer. The [Owner] has the
// mutex that guards everything but the reader's fields.
//
// Every frame is encoded into the queued output. At most one goroutine writes. It takes all that is
// queued, and frames that are queued meanwhile leave with its next write. There are three such
// goroutines. The reader writes before it waits, as much as the socket takes at once (WriteDirect).
// A caller that may wait writes with Flush. Signal starts a goroutine that ends when nothing is
// left. So the reader never waits for a peer that does not read, and a quiet connection has neither
// a goroutine nor a buffer for output.
package transport
