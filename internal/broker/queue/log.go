// SPDX-License-Identifier: Apache-2.0

package queue

// A Log gets what changes in a queue and has to outlive the process. Without one, a queue is in
// memory alone.
//
// A store implements it. It keeps steps in the order in which it gets them, each of them whole or
// not at all. Locks are no part of a step: what was delivered and not settled is found again as if
// its lock had lapsed.
type Log interface {
	// Append gets one step. It is called with the mutex of the queue held, so it must neither wait nor
	// call the queue. It must not keep s, whose parts are used again.
	Append(s *Step)
}

// A Step is what one operation has changed in a queue and its dead-letter queue.
type Step struct {
	// Last says where the numbers of messages stand, 0: where they stood. Resume goes on from
	// there, so that no message gets a number that another has had.
	Last    int64
	Changes []Change
}

// Fate is what has happened in a step to a message, to the state of a session, or to the
// message-ids by which duplicates are found.
type Fate int8

// The fates of a message.
const (
	Added   Fate = iota // it is new: all of it has to be kept
	Changed             // its stamps have changed, its content has not
	Removed             // it is gone, and all but Record is zero
)

// The other fates. Changes that have them use the fields that are named here alone.
const (
	StateSet   Fate = Removed + 1 + iota // Body is the state of SessionID since EnqueuedTime; empty: it has none
	IDSent                               // MessageID was sent at EnqueuedTime. It may be longer than that of a message
	IDsExpired                           // what was sent before EnqueuedTime is forgotten
)

// A Change is what a step has done to one message, to one session, or to message-ids.
type Change struct {
	Fate   Fate
	Record int64 // names the message in its queue, from its first step to its last
	Stored
}

// Stored is a message as it has to be found after a restart.
type Stored struct {
	View      // Locked and LockedUntil are not kept
	Dead bool // it is in the dead-letter queue
	// Delivered: somebody has it. A delivery has failed when its process ended.
	Delivered bool
}
