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
	// Read calls each with the contents of messages, in any order. It is called without a mutex, and
	// may wait for the disk. The steps that have Added the messages are on disk. One that was Removed
	// since may be missing. An error is one of the disk, which Read has reported where that is
	// noticed.
	Read(records []int64, each func(record int64, c Content)) error
	// Keep reports whether a queue may keep so many bytes more in memory. If it may not, they are on
	// disk alone once the step is, see Step.OnDisk. With a number below zero it keeps fewer.
	Keep(bytes int) bool
}

// Content is what of a message nobody needs but those who are given it. An entity keeps as much of
// it in memory as its log allows. The rest it reads from there.
type Content struct {
	MessageID string
	Body      []byte
}

// A Step is what one operation has changed in a queue and its dead-letter queue.
type Step struct {
	// Last says where the numbers of messages stand, 0: where they stood. Resume goes on from
	// there, so that no message gets a number that another has had.
	Last    int64
	Changes []Change
	// OnDisk, unless nil, is to be called once the step is on disk, without a mutex of the log.
	OnDisk func()
}

// Fate is what has happened in a step to a message, to the state of a session, or to the
// message-ids by which duplicates are found.
type Fate int8

// The fates of a message.
const (
	Added   Fate = iota // it is new: all of it has to be kept
	Changed             // its stamps have changed, its content has not, and may be missing
	Removed             // it is gone, and all but Record and ContentSize means nothing
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
	// ContentSize is the bytes of the content, wherever that is.
	ContentSize int
}
