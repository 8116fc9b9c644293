// SPDX-License-Identifier: Apache-2.0

package index

import (
	"math"
	"time"
)

// A Reference names a message and says when the broker can have enqueued it. Instants are
// nanoseconds of Unix time.
type Reference struct {
	Key         Key   // zero: it has no message-id, so no settlement can be tied to it
	From, Until int64 // both 0: it has no window
	Deadline    int64
	Within      int64 // 0: Deadline does not depend on the enqueued-time
}

func (r *Reference) isNamed() bool { return r.Key != Key{} }

// A reference is one that was put.
type reference struct {
	Reference
	entity   string
	state    state
	refused  bool       // the broker has refused the message, as far as its sender knows
	accepted int64      // when the message was accepted at the latest; 0 = that is not known
	settled  *Delivered // what would have taken it off, had it been confirmed
	carrier  *carrier   // nil until it is written
}

type state uint8

const (
	open state = iota
	taken
	forgotten
)

func (in *reference) isUnconfirmed() bool { return in.accepted == 0 }

func (in *reference) hasWindow() bool { return in.From != 0 }

// lastStamp is the last instant with which its message could be stamped, or be taken to be.
func (in *reference) lastStamp() int64 {
	switch {
	case !in.hasWindow():
		return math.MaxInt64
	case in.isUnconfirmed():
		return in.Until + int64(takeWindow)
	}
	return in.accepted + int64(takeWindow)
}

// mayBe reports whether a message with that stamp could have been sent with the reference.
func (in *reference) mayBe(stamp int64) bool {
	return !in.hasWindow() || stamp >= in.From-int64(takeWindow) && stamp <= in.lastStamp()
}

// agrees reports whether a message with that stamp has the deadline of the reference.
func (in *reference) agrees(stamp, deadline int64) bool {
	want := in.Deadline
	if in.Within > 0 {
		want = stamp + in.Within
	}
	return time.Duration(deadline-want).Abs() <= time.Millisecond
}
