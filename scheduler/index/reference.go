// SPDX-License-Identifier: Apache-2.0

package index

import (
	"math"
	"time"
)

// A reference is one that was put. Instants are nanoseconds of Unix time.
type reference struct {
	key    Key
	entity string
	terms
	state    state
	refused  bool       // the broker has refused the message, as far as its sender knows
	accepted int64      // when it was accepted at the latest; 0 = that is not known
	settled  *Delivered // what would have taken it off, had it been confirmed
	carrier  *carrier   // nil until it is written
}

type state uint8

const (
	open state = iota
	taken
	forgotten
)

// terms are what a reference says but for its ids.
type terms struct {
	from, until int64 // both 0 = it has no window
	deadline    int64
	within      int64
}

func termsOf(r *Reference) terms {
	t := terms{
		deadline: r.Deadline.UnixNano(),
		within:   int64(r.Within),
	}
	if !r.From.IsZero() {
		t.from, t.until = r.From.UnixNano(), r.Until.UnixNano()
	}
	return t
}

func (in *reference) isUnconfirmed() bool { return in.accepted == 0 }

func (in *reference) hasWindow() bool { return in.from != 0 }

// lastStamp is the last instant with which its message could be stamped, or be taken to be.
func (in *reference) lastStamp() int64 {
	switch {
	case !in.hasWindow():
		return math.MaxInt64
	case in.isUnconfirmed():
		return in.until + int64(takeWindow)
	}
	return in.accepted + int64(takeWindow)
}

// mayBe reports whether a message with that stamp could have been sent with the reference.
func (in *reference) mayBe(stamp int64) bool {
	return !in.hasWindow() || stamp >= in.from-int64(takeWindow) && stamp <= in.lastStamp()
}

// agrees reports whether a message with that stamp has the deadline of the reference.
func (in *reference) agrees(stamp, deadline int64) bool {
	want := in.deadline
	if in.within > 0 {
		want = stamp + in.within
	}
	return time.Duration(deadline-want).Abs() <= time.Millisecond
}
