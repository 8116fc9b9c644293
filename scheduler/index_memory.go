// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"math"
	"sync"
	"time"
)

// defaultReferences is how many references a MemoryIndex keeps: some 5 MiB, and at 1,000 sends
// a second those of half a minute that nobody has received.
const defaultReferences = 32 << 10

// A MemoryIndex is the index of one process. It knows of the sends of that process alone and starts empty.
type MemoryIndex struct {
	mu       sync.Mutex
	refs     []indexed     // grows up to its bound, then places are used again
	free     int32         // first of the places that are free, linked by next; none = no such
	hand     int           // next place to give up when none is free
	most     int           // references
	first    map[Key]int32 // place of the first reference with a key, linked by next
	carriers map[companionID]*carrier
	unneeded []needless // not told yet
	blind    [256]int64 // by bucket of a key: no stamp up to this is taken, see forgetLocked
}

// indexed is one reference. Instants are nanoseconds of Unix time.
type indexed struct {
	key         Key
	next        int32 // with the same key, or free; none = the last
	sibling     int32 // of the same companion; none = the last
	state       refState
	from, until int64 // of the reference; both 0 = it has no window
	latest      int64 // when it was accepted at the latest; 0 = that is not known
	deadline    int64
	within      int64
	settled     *Delivered // what would have taken it off, had it been confirmed
	carrier     *carrier   // nil until it is written
}

type refState uint8

const (
	refFree refState = iota
	refOpen
	refTaken
)

const none = int32(-1)

// maxAlike bounds the references with one key. Where ids repeat so often nothing can be told apart.
const maxAlike = 16

// bucket says where blind keeps what is about the key.
func (k Key) bucket() uint8 { return uint8(k[0]) }

// carrier is one companion that waits on the monitor queue.
type carrier struct {
	id      companionID
	entity  string
	all     int // references that it carries
	due     time.Time
	written time.Time
	number  int64 // 0 = not known
	first   int32 // of its references that are still here
	here    int   // how many those are
	open    int   // references that are not taken off, those that were forgotten included
}

// NewMemoryIndex makes an index that keeps up to n references, 32,768 when n is 0.
func NewMemoryIndex(n int) *MemoryIndex {
	if n <= 0 {
		n = defaultReferences
	}
	return &MemoryIndex{most: n, free: none, first: map[Key]int32{}, carriers: map[companionID]*carrier{}}
}

// Put is described at Index. Like its neighbours it does what takes time, the keys, without the mutex: all
// connections share it.
func (x *MemoryIndex) Put(entity string, refs []Reference) {
	for i := range refs {
		r := &refs[i]
		in := indexed{
			key: KeyOf(entity, r.MessageID, r.SessionID), next: none, sibling: none, state: refOpen,
			deadline: r.Deadline.UnixNano(), within: int64(r.Within),
		}
		if !r.From.IsZero() {
			in.from, in.until = r.From.UnixNano(), r.Until.UnixNano()
		}
		x.put(in)
	}
}

func (x *MemoryIndex) put(in indexed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.thinLocked(in.key)
	at := x.placeLocked()
	if first, ok := x.first[in.key]; ok {
		in.next = first
	}
	x.refs[at] = in
	x.first[in.key] = at
}

// thinLocked forgets the oldest of the references with a key when there are too many.
func (x *MemoryIndex) thinLocked(key Key) {
	at, ok := x.first[key]
	if !ok {
		return
	}
	n := 1
	for ; x.refs[at].next != none; at = x.refs[at].next {
		n++
	}
	if n >= maxAlike {
		x.forgetLocked(at)
	}
}

// placeLocked returns a place that is free, and gives one up if there is none.
func (x *MemoryIndex) placeLocked() int32 {
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
func (x *MemoryIndex) forgetLocked(at int32) {
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
	if x.first[in.key] == at {
		if in.next == none {
			delete(x.first, in.key)
		} else {
			x.first[in.key] = in.next
		}
	} else {
		for i := x.first[in.key]; ; i = x.refs[i].next {
			if x.refs[i].next == at {
				x.refs[i].next = in.next
				break
			}
		}
	}
	*in = indexed{next: x.free}
	x.free = at
}

func (x *MemoryIndex) unlinkSiblingLocked(c *carrier, at int32) {
	if c.first == at {
		c.first = x.refs[at].sibling
		return
	}
	for i := c.first; i != none; i = x.refs[i].sibling {
		if x.refs[i].sibling == at {
			x.refs[i].sibling = x.refs[at].sibling
			return
		}
	}
}

// findLocked returns the place of r, whose key is given, if it suits.
func (x *MemoryIndex) findLocked(key Key, r *Reference, suits func(*indexed) bool) (int32, bool) {
	at, ok := x.first[key]
	if !ok {
		return none, false
	}
	for ; at != none; at = x.refs[at].next {
		in := &x.refs[at]
		same := in.deadline == r.Deadline.UnixNano() && in.within == int64(r.Within)
		if r.From.IsZero() {
			same = same && in.from == 0
		} else {
			same = same && in.from == r.From.UnixNano() && in.until == r.Until.UnixNano()
		}
		if same && suits(in) {
			return at, true
		}
	}
	return none, false
}

// Confirm is described at Index.
func (x *MemoryIndex) Confirm(entity string, refs []Reference, by time.Time) {
	for i := range refs {
		r := &refs[i]
		if span := by.Sub(r.From); r.From.IsZero() || span < 0 || span > takeWindow {
			continue
		}
		x.confirm(KeyOf(entity, r.MessageID, r.SessionID), r, by)
	}
}

func (x *MemoryIndex) confirm(key Key, r *Reference, by time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.findLocked(key, r, func(in *indexed) bool { return in.latest == 0 })
	if !ok {
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
func (x *MemoryIndex) Carried(id companionID, c *Companion) {
	// One more of both, until all references have been looked for.
	k := &carrier{
		id: id, entity: c.Entity, all: len(c.References), due: c.Due, written: time.Now(), first: none,
		here: 1, open: len(c.References) + 1,
	}
	if !x.addCarrier(k) {
		return // written twice: the copy rings for nothing
	}
	for i := range c.References {
		r := &c.References[i]
		x.carriedBy(k, KeyOf(c.Entity, r.MessageID, r.SessionID), r)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k.open--
	if k.here--; k.here == 0 {
		delete(x.carriers, id)
		return
	}
	x.needlessLocked(k)
}

func (x *MemoryIndex) addCarrier(k *carrier) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.carriers[k.id] != nil {
		return false
	}
	x.carriers[k.id] = k
	return true
}

func (x *MemoryIndex) carriedBy(k *carrier, key Key, r *Reference) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.findLocked(key, r, func(in *indexed) bool { return in.carrier == nil })
	if !ok {
		return
	}
	in := &x.refs[at]
	in.carrier, in.sibling = k, k.first
	k.first = at
	k.here++
	if in.state == refTaken {
		k.open--
	}
}

// needlessLocked notes that k is needless, once it is.
func (x *MemoryIndex) needlessLocked(k *carrier) {
	if k.open == 0 && len(x.unneeded) < x.most { // or nobody asks for them
		x.unneeded = append(x.unneeded, needless{ID: k.id, Entity: k.entity, Messages: k.all, Due: k.due, Written: k.written})
	}
}

// Known is described at Index.
func (x *MemoryIndex) Known(key Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.first[key]
	return ok
}

// Take is described at Index.
func (x *MemoryIndex) Take(d Delivered) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.takeLocked(d)
}

func (x *MemoryIndex) takeLocked(d Delivered) bool {
	at, ok := x.first[d.Key]
	stamp := d.Enqueued.UnixNano()
	if !ok || stamp <= x.blind[d.Key.bucket()] {
		return false
	}
	only := none
	for ; at != none; at = x.refs[at].next {
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
		x.needlessLocked(k)
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
func (x *MemoryIndex) Taken(entity string, r *Reference) bool {
	key := KeyOf(entity, r.MessageID, r.SessionID)
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.findLocked(key, r, func(in *indexed) bool { return in.state == refTaken })
	return ok
}

// Needless is described at Index.
func (x *MemoryIndex) Needless(dst []needless) []needless {
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
func (x *MemoryIndex) Number(id companionID, number int64) bool {
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
func (x *MemoryIndex) NumberOf(id companionID) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.carriers[id]; k != nil {
		return k.number
	}
	return 0
}

// Forget is described at Index.
func (x *MemoryIndex) Forget(id companionID) {
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
