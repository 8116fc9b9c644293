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
	// is to be taken off, and how far the window of another reference that could be meant is widened:
	// the nodes of a broker need not agree to the millisecond. It MUST NOT be more than the margin by
	// which the monitor widens a reference's window: then references that could be confused are
	// interchangeable, and the one that is left finds both messages.
	takeWindow = 250 * time.Millisecond
)

// A Reference names a message and says when the broker can have enqueued it.
type Reference struct {
	MessageID, SessionID string // without a message-id, no settlement can be tied to it
	From, Until          time.Time
	Deadline             time.Time
	Within               time.Duration // 0 = Deadline does not depend on the enqueued-time
}

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
	needless []*carrier       // those that are forgotten included
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
		blind:    map[string]int64{},
		signal:   make(chan struct{}, 1),
	}
}

// Put takes what is about to be sent to entity, before it leaves. A reference that the index
// forgets before Carried has named its companion goes on to forbid takes in its window: it is not
// certain that the message has a companion.
func (x *Index) Put(entity string, refs []Reference) {
	x.each(entity, refs, func(key Key, r *Reference) {
		if alike := x.byKey[key]; len(alike) == maxAlike {
			x.forgetLocked(alike[0])
		}
		in := &reference{
			key:    key,
			entity: entity,
			terms:  termsOf(r),
		}
		if len(x.latest) < x.most {
			x.latest = append(x.latest, in)
		} else {
			x.forgetLocked(x.latest[x.oldest])
			x.latest[x.oldest] = in
			x.oldest = (x.oldest + 1) % x.most
		}
		x.byKey[key] = append(x.byKey[key], in)
	})
}

// each calls f for each reference that names a message with its key, and the mutex held. The keys
// take time, and all connections share the mutex: they are made without it.
func (x *Index) each(entity string, refs []Reference, f func(Key, *Reference)) {
	var room [16]Key
	keys := room[:0]
	for i := range refs {
		keys = append(keys, KeyOf(entity, refs[i].MessageID, refs[i].SessionID))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range refs {
		if refs[i].MessageID != "" { // else no settlement shows which message that was
			f(keys[i], &refs[i])
		}
	}
}

// findLocked returns the latest reference that was put as r and suits, nil when there is none.
func (x *Index) findLocked(key Key, r *Reference, suits func(*reference) bool) *reference {
	terms := termsOf(r)
	for _, in := range slices.Backward(x.byKey[key]) {
		if in.terms == terms && suits(in) {
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
			delete(x.carriers, k.ID)
		}
	} else if in.state == open {
		// Its companion may never be written, and then none but that of a message which it could be
		// confused with is left for that one.
		x.forbidLocked(in.entity, in.lastStamp())
	}
	alike := slices.DeleteFunc(x.byKey[in.key], func(r *reference) bool { return r == in })
	if x.byKey[in.key] = alike; len(alike) == 0 {
		delete(x.byKey, in.key)
	}
	*in = reference{state: forgotten}
}

// Forbid makes that no message of entity is taken off which the broker stamps at the instant until
// or before: others were sent by then that the index does not know.
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
func (x *Index) Confirm(entity string, refs []Reference, by time.Time) {
	x.each(entity, refs, func(key Key, r *Reference) {
		if open := by.Sub(r.From); r.From.IsZero() || open < 0 || open > takeWindow {
			return
		}
		in := x.findLocked(key, r, (*reference).isUnconfirmed)
		if in == nil {
			return
		}
		in.accepted = by.UnixNano()
		if d := in.settled; d != nil {
			in.settled = nil
			x.takeLocked(*d)
		}
	})
}

// Refuse takes references of messages that the broker has refused. One of them may be on its queue
// all the same: a send that is repeated may be refused after it was accepted.
func (x *Index) Refuse(entity string, refs []Reference) {
	x.each(entity, refs, func(key Key, r *Reference) {
		if in := x.findLocked(key, r, (*reference).isUnconfirmed); in != nil {
			in.refused = true
		}
	})
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
	x.each(entity, refs, func(key Key, r *Reference) {
		if x.carriers[id] != nil && x.carriers[id] != k {
			return
		}
		in := x.findLocked(key, r, func(in *reference) bool { return in.carrier == nil })
		if in == nil {
			return
		}
		in.carrier = k
		k.here++
		x.carriers[id] = k
		if in.state == taken {
			x.lessOpenLocked(k)
		}
	})
}

// lessOpenLocked notes that one reference less of k is open.
func (x *Index) lessOpenLocked(k *carrier) {
	if k.open--; k.open > 0 {
		return
	}
	if len(x.needless) == 2*x.most { // nobody asks for them: no more than most are not forgotten
		x.dropNeedlessLocked(time.Time{})
	}
	x.needless = append(x.needless, k)
	select {
	case x.signal <- struct{}{}:
	default:
	}
}

// dropNeedlessLocked drops needless companions that are due before an instant or forgotten.
func (x *Index) dropNeedlessLocked(dueFrom time.Time) {
	x.needless = slices.DeleteFunc(x.needless, func(k *carrier) bool {
		return x.carriers[k.ID] != k || k.Due.Before(dueFrom)
	})
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
// one could be meant.
func (x *Index) Take(d Delivered) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.takeLocked(d)
}

func (x *Index) takeLocked(d Delivered) bool {
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
	switch {
	case only == nil || !only.agrees(stamp, d.Deadline.UnixNano()):
		return false
	case only.isUnconfirmed():
		only.settled = &d // its consumer was faster than the answer to its sender
		return false
	case stamp < only.from || stamp > only.accepted:
		return false
	}
	only.state = taken
	if only.carrier != nil {
		x.lessOpenLocked(only.carrier)
	}
	return true
}

// Taken reports whether r has been taken off.
func (x *Index) Taken(entity string, r *Reference) bool {
	return x.has(entity, r, func(in *reference) bool { return in.state == taken })
}

// Refused reports whether the message of r was refused.
func (x *Index) Refused(entity string, r *Reference) bool {
	return x.has(entity, r, func(in *reference) bool { return in.refused })
}

func (x *Index) has(entity string, r *Reference, suits func(*reference) bool) (has bool) {
	x.each(entity, []Reference{*r}, func(key Key, r *Reference) { has = x.findLocked(key, r, suits) != nil })
	return has
}

// Carries reports whether a companion waits for the message of r, which was found on its entity:
// the companion carries a reference with its id and deadline, in whose window it was stamped.
func (x *Index) Carries(entity string, r *Reference) (carries bool) {
	stamp, deadline := r.From.UnixNano(), r.Deadline.UnixNano()
	x.each(entity, []Reference{*r}, func(key Key, _ *Reference) {
		carries = slices.ContainsFunc(x.byKey[key], func(in *reference) bool {
			return in.state == open && in.carrier != nil && in.hasWindow() && in.mayBe(stamp) && in.agrees(stamp, deadline)
		})
	})
	return carries
}

// Needless returns the companions all of whose references have been taken off, but for those that
// are due before an instant or forgotten.
func (x *Index) Needless(dueFrom time.Time) (needless []Needless) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropNeedlessLocked(dueFrom)
	for _, k := range x.needless {
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
	delete(x.carriers, id)
}
