// SPDX-License-Identifier: Apache-2.0

package index

import (
	"math/bits"
	"slices"
	"sync"
	"time"
)

// defaultReferences is how many references a Memory keeps: some 5 MiB, and at 1,000 sends
// a second those of half a minute that nobody has received.
const defaultReferences = 32 << 10

// A Memory is the index of one process. It knows of the sends of that process alone and starts
// empty.
type Memory struct {
	mu       sync.Mutex
	refs     []indexed // grows up to its bound, then places are used again
	free     int32     // first of the places that are free, linked by next; none = no such
	hand     int       // next place to give up when none is free
	most     int       // references
	chains   []int32   // by key: the place of the one put last + 1, linked by next; 0 = none
	carriers map[ID]*carrier
	unneeded []Needless // Needless has not returned them yet
	blind    [256]int64 // by bucket of a key: no stamp up to this is taken, see forgetLocked
}

// carrier is one companion that waits on the monitor queue.
type carrier struct {
	id      ID
	entity  string
	all     int // references that it carries
	due     time.Time
	written time.Time
	number  int64 // 0 = not known
	first   int32 // of its references that are still here, in the order in which it carries them
	last    int32
	here    int // how many those are
	open    int // references that are not taken off, those that were forgotten included
}

// NewMemory makes an index that keeps up to n references, 32,768 when n is 0. Of its chains most
// are empty, so that a key that is not there rarely leads to memory that nobody has used for long.
func NewMemory(n int) *Memory {
	if n <= 0 {
		n = defaultReferences
	}
	return &Memory{
		most: n, free: none, chains: make([]int32, 4<<bits.Len(uint(n-1))), carriers: map[ID]*carrier{},
	}
}

// keyed calls f for each reference that names a message with its key, and the mutex held. The keys
// take time, and all connections share the mutex: they are made without it.
func (x *Memory) keyed(entity string, refs []Reference, f func(Key, *Reference)) {
	var keys [16]Key
	for part := range slices.Chunk(refs, len(keys)) {
		for i := range part {
			keys[i] = KeyOf(entity, part[i].MessageID, part[i].SessionID)
		}
		x.mu.Lock()
		for i := range part {
			if part[i].MessageID != "" { // else no settlement shows which message that was
				f(keys[i], &part[i])
			}
		}
		x.mu.Unlock()
	}
}

// Put is described at Index.
func (x *Memory) Put(entity string, refs []Reference) {
	x.keyed(entity, refs, func(key Key, r *Reference) {
		in := indexed{
			key: key, sibling: none, state: refOpen, deadline: r.Deadline.UnixNano(), within: int64(r.Within),
		}
		if !r.From.IsZero() {
			in.from, in.until = r.From.UnixNano(), r.Until.UnixNano()
		}
		x.putLocked(in)
	})
}

// Confirm is described at Index.
func (x *Memory) Confirm(entity string, refs []Reference, by time.Time) {
	x.keyed(entity, refs, func(key Key, r *Reference) {
		if span := by.Sub(r.From); !r.From.IsZero() && span >= 0 && span <= takeWindow {
			x.confirmLocked(key, r, by)
		}
	})
}

func (x *Memory) confirmLocked(key Key, r *Reference, by time.Time) {
	at := x.findLocked(key, r, func(in *indexed) bool { return in.latest == 0 })
	if at == none {
		return
	}
	in := &x.refs[at]
	in.latest = by.UnixNano()
	if d := in.settled; d != nil {
		in.settled = nil
		x.takeLocked(*d)
	}
}

// Carried is described at Index.
func (x *Memory) Carried(id ID, entity string, due time.Time, refs []Reference) {
	// One more of both, until all references have been looked for.
	k := &carrier{
		id: id, entity: entity, all: len(refs), due: due, written: time.Now(), first: none, last: none,
		here: 1, open: len(refs) + 1,
	}
	if !x.addCarrier(k) {
		return // written twice: the copy becomes due for nothing
	}
	x.keyed(entity, refs, func(key Key, r *Reference) { x.carriedByLocked(k, key, r) })
	x.mu.Lock()
	defer x.mu.Unlock()
	k.open--
	if k.here--; k.here == 0 {
		delete(x.carriers, id)
		return
	}
	x.noteNeedlessLocked(k)
}

func (x *Memory) addCarrier(k *carrier) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.carriers[k.id] != nil {
		return false
	}
	x.carriers[k.id] = k
	return true
}

func (x *Memory) carriedByLocked(k *carrier, key Key, r *Reference) {
	at := x.findLocked(key, r, func(in *indexed) bool { return in.carrier == nil })
	if at == none {
		return
	}
	in := &x.refs[at]
	in.carrier = k
	if k.first == none {
		k.first = at
	} else {
		x.refs[k.last].sibling = at
	}
	k.last = at
	k.here++
	if in.state == refTaken {
		k.open--
	}
}

// Refuse is described at Index.
func (x *Memory) Refuse(entity string, refs []Reference) {
	x.keyed(entity, refs, func(key Key, r *Reference) {
		if at := x.findLocked(key, r, func(in *indexed) bool { return in.latest == 0 }); at != none {
			x.refs[at].refused = true
		}
	})
}

// noteNeedlessLocked notes that k is needless, once it is.
func (x *Memory) noteNeedlessLocked(k *carrier) {
	if k.open == 0 && len(x.unneeded) < x.most { // or nobody asks for them
		x.unneeded = append(x.unneeded, Needless{ID: k.id, Entity: k.entity, Messages: k.all, Due: k.due, Written: k.written})
	}
}

// Known reports whether a reference with the key may be there.
func (x *Memory) Known(key Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.latestLocked(key) != none
}

// Take is described at Index.
func (x *Memory) Take(d Delivered) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.takeLocked(d)
}

func (x *Memory) takeLocked(d Delivered) bool {
	stamp := d.Enqueued.UnixNano()
	if stamp <= x.blind[d.Key.bucket()] {
		return false
	}
	only := none
	for at := x.latestLocked(d.Key); at != none; at = x.earlierLocked(at) {
		in := &x.refs[at]
		if in.state != refOpen || !in.mayBe(stamp) {
			continue
		}
		if only != none {
			return false
		}
		only = at
	}
	if only == none {
		return false
	}
	in := &x.refs[only]
	switch {
	case !in.agrees(stamp, d.Deadline.UnixNano()):
		return false
	case in.latest == 0:
		early := d // its consumer was faster than the answer to its sender
		in.settled = &early
		return false
	case stamp < in.from || stamp > in.latest:
		return false
	}
	in.state = refTaken
	if k := in.carrier; k != nil {
		k.open--
		x.noteNeedlessLocked(k)
	}
	return true
}

// mayBe reports whether a message with that stamp could have been sent with the reference.
func (in *indexed) mayBe(stamp int64) bool {
	if in.from == 0 {
		return true
	}
	until := in.until
	if in.latest != 0 {
		until = in.latest
	}
	return stamp >= in.from-int64(takeMargin) && stamp <= until+int64(takeMargin)
}

// agrees reports whether a message with that stamp has the deadline of the reference.
func (in *indexed) agrees(stamp, deadline int64) bool {
	want := in.deadline
	if in.within > 0 {
		want = stamp + in.within
	}
	return time.Duration(deadline-want).Abs() <= time.Millisecond
}

// Taken is described at Index.
func (x *Memory) Taken(entity string, r *Reference) bool {
	key := KeyOf(entity, r.MessageID, r.SessionID)
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.findLocked(key, r, func(in *indexed) bool { return in.state == refTaken }) != none
}

// Refused is described at Index.
func (x *Memory) Refused(entity string, r *Reference) bool {
	key := KeyOf(entity, r.MessageID, r.SessionID)
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.findLocked(key, r, func(in *indexed) bool { return in.refused }) != none
}

// waits reports whether r, whose key is given, waits for its message to be settled.
func (x *Memory) waits(key Key, r *Reference) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.findLocked(key, r, func(in *indexed) bool { return in.state == refOpen }) != none
}

// Expects is described at Index.
func (x *Memory) Expects(entity string, messageID, sessionID []byte) (Key, bool) {
	key := KeyOf(entity, messageID, sessionID)
	return key, x.Known(key)
}

// Carries is described at Index.
func (x *Memory) Carries(entity string, r *Reference) bool {
	if r.MessageID == "" {
		return false
	}
	key := KeyOf(entity, r.MessageID, r.SessionID)
	stamp := r.From.UnixNano()
	x.mu.Lock()
	defer x.mu.Unlock()
	for at := x.latestLocked(key); at != none; at = x.earlierLocked(at) {
		in := &x.refs[at]
		if in.carrier != nil && in.from != 0 && in.mayBe(stamp) && in.agrees(stamp, r.Deadline.UnixNano()) {
			return true
		}
	}
	return false
}

// Needless is described at Index.
func (x *Memory) Needless(dst []Needless) []Needless {
	x.mu.Lock()
	defer x.mu.Unlock()
	dst = append(dst, x.unneeded...)
	x.unneeded = x.unneeded[:0]
	if cap(x.unneeded) > 1024 {
		x.unneeded = nil
	}
	return dst
}

// Number is described at Index.
func (x *Memory) Number(id ID, number int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.carriers[id]
	if k == nil {
		return false
	}
	k.number = number
	return true
}

// NumberOf is described at Index.
func (x *Memory) NumberOf(id ID) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.carriers[id]; k != nil {
		return k.number
	}
	return 0
}

// Forget is described at Index.
func (x *Memory) Forget(id ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.carriers[id]
	if k == nil {
		return
	}
	for at := k.first; at != none; at = k.first {
		x.forgetLocked(at)
	}
}
