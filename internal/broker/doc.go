// SPDX-License-Identifier: Apache-2.0

// Package broker speaks the dialect of Azure Service Bus: it is an
// amqpserver.Handler over queues of package queue, good enough that the
// official clients cannot tell.
//
//	client ──attach q────────────▶ sender    ──Send──────▶ queue
//	       ◀─attach q─────────────  receiver ◀─Take──────  queue, one pump each
//	       ──attach q/$management▶ requests ──▶ responder ─▶ one file per operation
//	       ──attach $cbs─────────▶ requests ──▶ responder ─▶ put-token
//
// A message is kept as the bytes its sender wrote. What the broker knows better
// (header, sequence number, times, lock, state, properties set by settlements)
// is laid over them on delivery, so bodies and foreign encodings come out as
// they went in.
//
// # Goroutines
//
// The callbacks of amqpserver run in the read loop of a connection and never
// wait. Every receiving link has one goroutine more: a pump that moves
// deliveries from the queue to the peer, or a responder that answers requests.
// It ends with its link, and Close waits for it.
package broker
