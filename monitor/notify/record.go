// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"hash/maphash"
	"sync"
)

// leastRemembered is how many events that are done a record remembers at least, and at most twice
// as many: about 40 MiB. It only avoids repetitions. Several companions may stand for one message,
// and in a burst they come up to a minute and a million events apart.
const leastRemembered = 1 << 20

// A Record has the events of which this process has notified, or is notifying. Only those that are
// done are ever dropped.
type Record struct {
	mu      sync.Mutex
	running map[key][]func(Result)
	done    map[key]struct{}
	older   map[key]struct{} // the generation before; dropped when done is full
}

// A key stands for an event's id in this process. An event that has the key of one of a million
// others by chance is not notified: one in 10¹³.
type key uint64

var keySeed = maphash.MakeSeed()

func keyOf(id string) key { return key(maphash.String(keySeed, id)) }

// begin has ended called with the result of the notification of k: at once if it is done. The
// caller that gets first must notify, and call end.
func (t *Record) begin(k key, ended func(Result)) (first bool) {
	t.mu.Lock()
	if t.isDoneLocked(k) {
		t.mu.Unlock()
		ended(Result{})
		return false
	}
	defer t.mu.Unlock()
	if t.running == nil {
		t.running = map[key][]func(Result){}
	}
	t.running[k] = append(t.running[k], ended)
	return len(t.running[k]) == 1
}

// end records the result of a notification, and hands it to all that wait for it. After a failure,
// the next begin is the first again.
func (t *Record) end(k key, r Result) {
	t.mu.Lock()
	waiting := t.running[k]
	delete(t.running, k)
	if r.Err == nil {
		t.addLocked(k)
	}
	t.mu.Unlock()
	for _, ended := range waiting {
		ended(r)
	}
}

// addLocked records that an event is done.
func (t *Record) addLocked(k key) {
	if t.done == nil || len(t.done) >= leastRemembered {
		t.older, t.done = t.done, map[key]struct{}{}
	}
	t.done[k] = struct{}{}
}

func (t *Record) isDoneLocked(k key) bool {
	_, recent := t.done[k]
	_, before := t.older[k]
	return recent || before
}

// Note records that id needs no notification any more.
func (t *Record) Note(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addLocked(keyOf(id))
}

// IsFinal reports whether id needs no notification any more.
func (t *Record) IsFinal(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isDoneLocked(keyOf(id))
}
