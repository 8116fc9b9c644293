// SPDX-License-Identifier: Apache-2.0

// Package broker speaks the dialect of Azure Service Bus: it is an
// server.Handler over queues of package queue, good enough that the
// official clients cannot tell.
//
//	client ──attach q────────────▶ sender    ──Send──────▶ queue
//	       ◀─attach q─────────────  receiver ◀─Take──────  queue, one pump each
//	       ──attach q/$management▶ requests ──▶ responder ─▶ one file per operation
//	       ──attach $cbs─────────▶ requests ──▶ responder ─▶ put-token
//
// A message is kept as the bytes its sender wrote. Values that the broker knows better are laid
// over them on delivery: header, sequence number, times, lock, state, properties set by
// settlements. So bodies and foreign encodings come out as they went in.
//
// # Who may do what
//
// Without Config.Keys everybody may do everything. With keys, a connection
// proves by its tokens what it may do (auth_conn.go), and a request over HTTP by
// its Authorization header (auth_token.go). A token is for what lies at or below
// the path of its resource, and for the audience that it is put for; hosts are
// not compared. Tokens expire by the clock of the machine, also where
// Config.ClockOffset travels in time: it is for messages, and clients stay at
// home.
//
// # Which namespace
//
// With Config.Isolate a client may name a namespace of its own, which comes
// into being when it is named. What counts, in this order:
//
//  1. the name of its key: as SASL user name (JavaScript, PLAIN), of the first
//     token that is put, of the token of a request over HTTP. The name that every
//     example has, RootManageSharedAccessKey, names nothing; neither does any
//     where there are Config.Keys, because there they are those of the keys
//  2. the first label of the host that the connection is opened to, or of the
//     header Host, if the host has several: orders for orders.localhost
//  3. else it is the default namespace
//
// A connection belongs to what it has named when its first link leads into a namespace. Names that
// come later do not count.
//
// # What outlives the process
//
// With Config.Disk, entities and their messages do, see load.go. Each entity has a number on disk,
// which is never another's. New makes the entities of the disk first, then adds what is missing of
// the configuration. Everything that goes to a client, or that a method of Namespace returns, was
// on disk before. The order of mutexes begins with Disk.Hold, then comes that of the entities, then
// those of queues.
//
// # One package
//
// Entities, links, sessions and transactions of a namespace change under its locks
// and those of the queues, in one order. Separate packages would have to export
// that order. The parts that need no namespace are packages of their own: message,
// queue, filter.
//
// # Goroutines
//
// The callbacks of package server run in the read loop of a connection and never
// wait. Every receiving link has one goroutine more: a pump that moves
// deliveries from the queue to the peer, or a responder that answers requests.
// It ends with its link, and Close waits for it. A link that waits for the next
// session has one, too, until it is answered.
package broker
