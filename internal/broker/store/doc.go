// SPDX-License-Identifier: Apache-2.0

// Package store keeps what the queues of a broker hold in a directory, so that it survives the
// process and a loss of power.
//
//	queue ──Append step──▶ next batch ──commit, one at a time──▶ Pebble ──fsync──▶ disk
//	                                                                          │
//	client ◀────────────── outcome ◀───────────── After ◀────────────────────┘
//
// The queues in memory are the truth about order, locks and expiry. They report each step that they
// take. The store writes steps in batches: those that come while a batch is under way leave with
// the next. An outcome for a client waits in After until all steps before it are on disk. So after
// a crash the directory has a beginning of the history, and all of it that any client has heard of.
//
// # Records
//
// A message has two records. Its content, message-id and body, is written once, when it comes. What
// the queue needs of it is small, and is written again when it changes. A start reads that alone:
// contents are read when they are delivered, but for some that are kept in memory, see
// Store.KeepInMemory.
//
//	'e' entity                     description of an entity, as the broker writes it
//	'h'                            highest number that an entity ever had
//	'n' queue                      numbers of messages that are not used again, see reservedNumbers
//	'm' queue record               message without its content
//	'c' queue record               its content: message-id, then its bytes as its sender wrote them
//	's' queue session              state of a session
//	'i' queue time message-id      what duplicate detection remembers; expired times go as a range
//
// Messages and states are AMQP lists, message-ids are AMQP strings. A later version may append
// fields, and reads what has fewer.
//
// # A disk that is full or fails
//
// Pebble ends the process when it cannot write. So it does not learn of it: the file system below
// it tries again until there is room, see patientFS. Meanwhile After answers with queue.ErrNoRoom.
// An error of another kind, above all of fsync, cannot be repaired while the process runs. Nothing
// is written from then on, and After answers with queue.ErrNotStored. A content that cannot be read
// has the same consequence.
package store
