// SPDX-License-Identifier: Apache-2.0

package index

import (
	"math"
)

// indexed is one reference. Instants are nanoseconds of Unix time.
type indexed struct {
	key         Key
	next        int32 // in its chain: put before it; or free. none = the last
	sibling     int32 // of the same companion; none = the last
	state       refState
	from, until int64 // of the reference; both 0 = it has no window
	latest      int64 // when it was accepted at the latest; 0 = that is not known
	deadline    int64
	within      int64
	settled     *Delivered // what would have taken it off, had it been confirmed
	carrier     *carrier   // nil until it is written
	refused     bool       // the broker has refused the message, as far as its sender knows
}

type refState uint8

const (
	refFree refState = iota
	refOpen
	refTaken
)

const none = int32(-1)

// maxAlike bounds the references with one key. Beyond that, references with repeated ids cannot be distinguished.
const maxAlike = 16

// bucket says where blind keeps what is about the key.
func (k Key) bucket() uint8 { return uint8(k[0]) }

// putLocked puts in at the head of its chain, so that those with one key stand there from the
// latest to the oldest.
func (x *Memory) putLocked(in indexed) {
	x.thinLocked(in.key)
	at := x.placeLocked() // which may change the chain
	head := x.chainLocked(in.key)
	in.next = *head - 1
	x.refs[at] = in
	*head = at + 1
}

// chainLocked is the head of the chain that the key belongs to, which it shares with others.
func (x *Memory) chainLocked(key Key) *int32 { return &x.chains[key[1]&uint64(len(x.chains)-1)] }

// latestLocked is the place of the reference with the key that was put last, none when there is no
// such.
func (x *Memory) latestLocked(key Key) int32 { return x.alikeLocked(*x.chainLocked(key)-1, key) }

// earlierLocked is the place of the one with the same key that was put before the one at this
// place.
func (x *Memory) earlierLocked(at int32) int32 {
	return x.alikeLocked(x.refs[at].next, x.refs[at].key)
}

// alikeLocked is the first place with the key, from at on.
func (x *Memory) alikeLocked(at int32, key Key) int32 {
	for at != none && x.refs[at].key != key {
		at = x.refs[at].next
	}
	return at
}

// thinLocked forgets the oldest of the references with a key when there are too many.
func (x *Memory) thinLocked(key Key) {
	n, oldest := 0, none
	for at := x.latestLocked(key); at != none; at = x.earlierLocked(at) {
		n, oldest = n+1, at
	}
	if n >= maxAlike {
		x.forgetLocked(oldest)
	}
}

// placeLocked returns a place that is free, and gives one up if there is none.
func (x *Memory) placeLocked() int32 {
	switch {
	case x.free != none:
		at := x.free
		x.free = x.refs[at].next
		return at
	case len(x.refs) < x.most:
		x.refs = append(x.refs, indexed{})
		return int32(len(x.refs) - 1)
	}
	at := int32(x.hand) // the oldest, more or less
	x.hand = (x.hand + 1) % len(x.refs)
	x.forgetLocked(at)
	x.free = x.refs[at].next // it has become the first that is free
	return at
}

// forgetLocked frees a place.
func (x *Memory) forgetLocked(at int32) {
	in := &x.refs[at]
	if in.carrier != nil {
		if in.carrier.here--; in.carrier.here == 0 {
			delete(x.carriers, in.carrier.id)
		}
		x.unlinkSiblingLocked(in.carrier, at)
	} else if in.state == refOpen {
		// Its companion may never be written, and then none but that of a message which it
		// could be confused with is left for that one.
		until := int64(math.MaxInt64)
		if in.from != 0 {
			until = in.until + int64(takeMargin)
		}
		b := in.key.bucket()
		x.blind[b] = max(x.blind[b], until)
	}
	link := x.chainLocked(in.key)
	if *link-1 == at {
		*link = in.next + 1
	} else {
		before := *link - 1
		for x.refs[before].next != at {
			before = x.refs[before].next
		}
		x.refs[before].next = in.next
	}
	*in = indexed{next: x.free}
	x.free = at
}

// unlinkSiblingLocked takes a reference out of those of its companion. Mostly it is the first: the
// oldest are forgotten.
func (x *Memory) unlinkSiblingLocked(c *carrier, at int32) {
	if c.first == at {
		c.first = x.refs[at].sibling
		return
	}
	for i := c.first; i != none; i = x.refs[i].sibling {
		if x.refs[i].sibling == at {
			x.refs[i].sibling = x.refs[at].sibling
			if c.last == at {
				c.last = i
			}
			return
		}
	}
}

// findLocked returns the place of r, whose key is given, if it suits; none when there is no such.
func (x *Memory) findLocked(key Key, r *Reference, suits func(*indexed) bool) int32 {
	var from, until int64
	if !r.From.IsZero() {
		from, until = r.From.UnixNano(), r.Until.UnixNano()
	}
	deadline := r.Deadline.UnixNano()
	for at := x.latestLocked(key); at != none; at = x.earlierLocked(at) {
		in := &x.refs[at]
		same := in.deadline == deadline && in.within == int64(r.Within) && in.from == from && in.until == until
		if same && suits(in) {
			return at
		}
	}
	return none
}
