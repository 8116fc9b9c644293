// SPDX-License-Identifier: Apache-2.0

// Package index remembers which companion waits for which message, so that a message that is
// settled in time takes its companion along.
//
// An index may forget at any time: that costs a needless check and nothing else, but for one thing,
// see [Index.Put]. Nothing but id, session and stamps tie a settlement to a reference, and ids
// repeat. References that could be confused are interchangeable, which makes that safe: see
// takeWindow.
//
//	Put ─▶ open ─ Confirm, Take ─▶ taken ─▶ all of a companion are: Needless ─▶ cancelled: Forget
package index

import (
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// References is how many references the index of a scheduler keeps: some 6 MiB, and at 1,000 sends
	// a second those of half a minute.
	References = 32 << 10
	// maxAlike bounds the references with one key, among which a settlement is looked for. Beyond
	// that, messages with repeated ids cannot be distinguished.
	maxAlike = 16
	// takeWindow is how long the instants may span at which the broker can have stamped a message that
	// is to be taken off. It is also how far the window of another reference that could be meant is
	// widened, since the nodes of a broker need not agree to the millisecond. It MUST NOT be more than
	// the margin by which the monitor widens a reference's window. In that case references that could
	// be confused are interchangeable, and the one that is left finds both messages.
	takeWindow = 250 * time.Millisecond
)

// A Delivered is what is known of a message that was delivered, by what stands on it.
type Delivered struct {
	Key      Key    // zero: it was not sent from here
	Entity   string // the queue, or the path of the subscription, where it was received
	Number   int64
	Enqueued time.Time // as the broker stamped it
	Deadline time.Time // zero: none is known
}

// A Needless companion waits for messages that have all been settled.
type Needless struct {
	ID       ID
	Entity   string
	Messages int // that it waits for
	Due      time.Time
	Number   int64 // its sequence number; 0 = not known
}

// An Index knows of the sends of one process and starts empty. It is safe for concurrent use and
// does not block.
type Index struct {
	mu       sync.Mutex
	byKey    map[Key][]*reference // oldest first
	latest   []*reference         // the ones put last, used again in turn once there are most
	oldest   int                  // in latest, once it is full
	most     int                  // of latest
	carriers map[ID]*carrier
	needless map[ID]*carrier  // those of carriers of which no reference is open
	signal   chan struct{}    // see HasNeedless
	blind    map[string]int64 // by entity: no stamp up to this is taken
}

// A carrier is one companion that waits on the monitor queue.
type carrier struct {
	Needless
	here int // references that are not forgotten
	open int // references that are not taken off, those that were forgotten included
}

// New makes an index that keeps the last n references.
func New(n int) *Index {
	return &Index{
		byKey:    map[Key][]*reference{},
		most:     n,
		carriers: map[ID]*carrier{},
		needless: map[ID]*carrier{},
		blind:    map[string]int64{},
		signal:   make(chan struct{}, 1),
	}
}

// Put takes what is about to be sent to entity, before it leaves. A reference that the index
// forgets before Carried has named its companion goes on to forbid takes in its window: it is not
// certain that the message has a companion.
func (x *Index) Put(entity string, refs []Reference) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range refs {
		if !r.isNamed() {
			continue
		}
		if alike := x.byKey[r.Key]; len(alike) == maxAlike {
			x.forgetLocked(alike[0])
		}
		in := &reference{Reference: r, entity: entity}
		if len(x.latest) < x.most {
			x.latest = append(x.latest, in)
		} else {
			x.forgetLocked(x.latest[x.oldest])
			x.latest[x.oldest] = in
			x.oldest = (x.oldest + 1) % x.most
		}
		x.byKey[r.Key] = append(x.byKey[r.Key], in)
	}
}

// findLocked returns the latest reference that was put as r and suits, nil when there is none.
func (x *Index) findLocked(r Reference, suits func(*reference) bool) *reference {
	for _, in := range slices.Backward(x.byKey[r.Key]) {
		if in.Reference == r && suits(in) {
			return in
		}
	}
	return nil
}

// forgetLocked drops a reference, unless that has been done.
func (x *Index) forgetLocked(in *reference) {
	if in.state == forgotten {
		return
	}
	if k := in.carrier; k != nil {
		if k.here--; k.here == 0 && x.carriers[k.ID] == k {
			x.dropLocked(k.ID)
		}
	} else if in.state == open {
		// Its companion may never be written, and then none but that of a message which it could be
		// confused with is left for that one.
		x.forbidLocked(in.entity, in.lastStamp())
	}
	alike := slices.DeleteFunc(x.byKey[in.Key], func(r *reference) bool { return r == in })
	if x.byKey[in.Key] = alike; len(alike) == 0 {
		delete(x.byKey, in.Key)
	}
	*in = reference{state: forgotten}
}

// Forbid makes that no message of entity is taken off which the broker stamps at the instant until
// or before. Others were sent by then that the index does not know.
func (x *Index) Forbid(entity string, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forbidLocked(entity, until.UnixNano())
}

func (x *Index) forbidLocked(entity string, until int64) {
	entity = strings.ToLower(entity)
	x.blind[entity] = max(x.blind[entity], until)
}

func (x *Index) isForbiddenLocked(entity string, stamp time.Time) bool {
	until, ok := x.blind[strings.ToLower(entity)]
	return ok && stamp.UnixNano() <= until
}

// Confirm takes references of messages that the broker had accepted at the instant by of its clock.
// Only those can be taken.
func (x *Index) Confirm(refs []Reference, by time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	accepted := by.UnixNano()
	for _, r := range refs {
		if open := accepted - r.From; r.From == 0 || open < 0 || open > int64(takeWindow) {
			continue
		}
		if in := x.findLocked(r, (*reference).isUnconfirmed); in != nil {
			in.accepted = accepted
		}
	}
}

// Refuse takes references of messages that the broker has refused. One of them may be on its queue
// all the same: a send that is repeated may be refused after it was accepted.
func (x *Index) Refuse(refs []Reference) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range refs {
		if in := x.findLocked(r, (*reference).isUnconfirmed); in != nil {
			in.refused = true
		}
	}
}

// Carried notes that a companion waits on the monitor queue, and what for. If it was written twice,
// the copy becomes due for nothing.
func (x *Index) Carried(id ID, entity string, due time.Time, refs []Reference) {
	k := &carrier{
		Needless: Needless{
			ID:       id,
			Entity:   entity,
			Messages: len(refs),
			Due:      due,
		},
		open: len(refs),
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.carriers[id] != nil {
		return
	}
	for _, r := range refs {
		in := x.findLocked(r, func(in *reference) bool { return in.carrier == nil })
		if in == nil {
			continue
		}
		in.carrier = k
		k.here++
		x.carriers[id] = k
		if in.state == taken {
			x.lessOpenLocked(k)
		}
	}
}

// lessOpenLocked notes that one reference less of k is open.
func (x *Index) lessOpenLocked(k *carrier) {
	if k.open--; k.open > 0 || x.carriers[k.ID] != k {
		return
	}
	x.needless[k.ID] = k
	select {
	case x.signal <- struct{}{}:
	default:
	}
}

// dropLocked drops a companion.
func (x *Index) dropLocked(id ID) {
	delete(x.carriers, id)
	delete(x.needless, id)
}

// HasNeedless has a value when there may be more in Needless.
func (x *Index) HasNeedless() <-chan struct{} { return x.signal }

// Expects returns the key of a message that may have been sent from here, and that of no message for
// others. It is asked for every message that is delivered through an endpoint.
func (x *Index) Expects(entity string, messageID, sessionID []byte) Key {
	key := KeyOf(entity, messageID, sessionID)
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.byKey[key]) == 0 {
		return Key{}
	}
	return key
}

// Take takes off the reference that the settled message was sent with. It takes none when more than
// one could be meant, or the message is not confirmed yet.
func (x *Index) Take(d Delivered) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.isForbiddenLocked(d.Entity, d.Enqueued) {
		return false
	}
	stamp := d.Enqueued.UnixNano()
	var only *reference
	for _, in := range x.byKey[d.Key] {
		switch {
		case in.state != open || !in.mayBe(stamp):
		case only != nil:
			return false
		default:
			only = in
		}
	}
	if only == nil || !only.agrees(stamp, d.Deadline.UnixNano()) || stamp < only.From || stamp > only.accepted {
		return false
	}
	only.state = taken
	if only.carrier != nil {
		x.lessOpenLocked(only.carrier)
	}
	return true
}

// Taken reports whether r has been taken off.
func (x *Index) Taken(r Reference) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.findLocked(r, func(in *reference) bool { return in.state == taken }) != nil
}

// Refused reports whether the message of r was refused.
func (x *Index) Refused(r Reference) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.findLocked(r, func(in *reference) bool { return in.refused }) != nil
}

// Carries reports whether a companion waits for the message of r, which was found on its entity.
// Such a companion carries a reference with its id and deadline, in whose window it was stamped.
func (x *Index) Carries(r Reference) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.ContainsFunc(x.byKey[r.Key], func(in *reference) bool {
		isWatched := in.state == open && in.carrier != nil && in.hasWindow()
		return isWatched && in.mayBe(r.From) && in.agrees(r.From, r.Deadline)
	})
}

// Waiting returns how many messages are not settled whose companions are due after an instant, by
// entity.
func (x *Index) Waiting(after time.Time) map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	waiting := map[string]int{}
	for _, k := range x.carriers {
		if k.Due.After(after) && k.open > 0 {
			waiting[k.Entity] += k.open
		}
	}
	return waiting
}

// Needless returns the companions all of whose references have been taken off, but for those that
// are due before an instant or forgotten.
func (x *Index) Needless(dueFrom time.Time) (needless []Needless) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, k := range x.needless {
		if k.Due.Before(dueFrom) {
			delete(x.needless, id)
			continue
		}
		needless = append(needless, k.Needless)
	}
	return needless
}

// SetNumber notes the sequence number under which a companion waits, and reports whether it is
// ours.
func (x *Index) SetNumber(id ID, number int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.carriers[id]
	if k != nil {
		k.Number = number
	}
	return k != nil
}

// Forget drops a companion that waits no longer.
func (x *Index) Forget(id ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropLocked(id)
}
