// SPDX-License-Identifier: Apache-2.0

// Package notify hands each event to each sink once, however slow the sinks are, and due digests to
// their groups.
package notify

import (
	"cmp"
	"errors"
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// The record only avoids repetitions: an event that was dropped from it may be notified twice.
// Several companions may stand for one message, and a companion may come back. In a burst, their
// searches may be a minute and a million events apart. So an event that is done is remembered for
// rememberFor at least, unless there are more than mostDone. Where there are few, it is one of the
// last leastDone.
const (
	rememberFor = 2 * time.Minute
	leastDone   = 1 << 18
	mostDone    = 1 << 22 // about 60 MiB
)

// A Record has the events of which this process has notified, or is notifying. Only those that are
// done are ever dropped.
type Record struct {
	mu      sync.Mutex
	running map[Key]*notifying
	done    map[Key]struct{}
	older   map[Key]struct{} // the generation before; dropped when done is full
	began   time.Time        // by our clock: when done was empty
	least   int              // of a generation; 0: leastDone
}

// A Key stands for an event's id in this process. An event that has the key of one of a million
// others by chance is not notified: one in 10¹³.
type Key uint64

var keySeed = maphash.MakeSeed()

// KeyOf returns the key of the event with that id.
func KeyOf(id string) Key { return Key(maphash.String(keySeed, id)) }

// notifying is an event that is being notified.
type notifying struct{ ended []func(Result) }

// A Result is how a notification ended.
type Result struct {
	Taken  []string      // names of the sinks that have taken the event
	Err    error         // why the others have not
	Failed bool          // a sink failed, and did not only put the event off
	Wait   time.Duration // how long a sink wants no further attempt
}

// Begin has ended called with the result of the notification of k: at once if it is done. The
// caller that gets first must notify, and call End.
func (t *Record) Begin(k Key, ended func(Result)) (first bool) {
	t.mu.Lock()
	if t.isDoneLocked(k) {
		t.mu.Unlock()
		ended(Result{})
		return false
	}
	defer t.mu.Unlock()
	n := t.running[k]
	if n == nil {
		if t.running == nil {
			t.running = map[Key]*notifying{}
		}
		first, n = true, &notifying{}
		t.running[k] = n
	}
	n.ended = append(n.ended, ended)
	return first
}

// End records the result of a notification, and hands it to all that wait for it. After a
// failure, the next Begin is the first again.
func (t *Record) End(k Key, r Result) {
	t.mu.Lock()
	n := t.running[k]
	delete(t.running, k)
	if r.Err == nil {
		t.addLocked(k)
	}
	t.mu.Unlock()
	for _, ended := range n.ended {
		ended(r)
	}
}

// addLocked records that an event is done.
func (t *Record) addLocked(k Key) {
	if n := len(t.done); t.done == nil || n >= mostDone || n >= cmp.Or(t.least, leastDone) && time.Since(t.began) >= rememberFor {
		t.older, t.done, t.began = t.done, map[Key]struct{}{}, time.Now()
	}
	t.done[k] = struct{}{}
}

func (t *Record) isDoneLocked(k Key) bool {
	_, recent := t.done[k]
	_, before := t.older[k]
	return recent || before
}

// Note records that id needs no notification any more.
func (t *Record) Note(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := KeyOf(id); t.running[k] == nil {
		t.addLocked(k)
	}
}

// Has reports whether id was notified, or is being notified.
func (t *Record) Has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := KeyOf(id)
	return t.running[k] != nil || t.isDoneLocked(k)
}

// IsFinal reports whether the notification of id has succeeded.
func (t *Record) IsFinal(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isDoneLocked(KeyOf(id))
}

// Join is errors.Join on one line: the error becomes the description of a dead letter.
func Join(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return oneLine{err}
	}
	return nil
}

type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }
