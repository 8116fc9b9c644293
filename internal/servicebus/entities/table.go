// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An answer is what is held of an entity. It is never changed, only replaced.
type answer struct {
	info    Info
	err     error     // why there is no info
	at      time.Time // when the source was asked for info
	failing bool      // it did not answer since

	next    time.Time     // when to ask again
	until   time.Time     // when info and err are too old to be used
	pause   time.Duration // before next, where the read has failed
	version uint64        // of a source that has versions
}

// usable reports whether the answer will do without waiting for another. That an entity does not
// exist never does: who asks is about to use it, and it may have been made since. Where the source
// did not answer everything does for as long as it is down.
func (a *answer) usable(now time.Time, down bool) bool {
	return a != nil && (now.Before(a.until) || a.failing && down)
}

// An entry is one name that somebody asked for.
type entry struct {
	name      string                 // as it was first spelled
	spellings []string               // under which the table has it; guarded by table.mu
	answer    atomic.Pointer[answer] // nil while there was none
	used      atomic.Int64           // when it was last asked for, in seconds
	busy      atomic.Bool            // done is not nil, read without the lock

	// Guarded by Store.mu:
	done  chan struct{} // closed when the read that is under way ends
	began time.Time     // of that read
}

// use notes that the entry is wanted. It writes rarely, because all senders to an entity share it.
func (e *entry) use(now time.Time) {
	if sec := now.Unix(); e.used.Load() != sec {
		e.used.Store(sec)
	}
}

// maxSpellings bounds how many ways to write a name are found without looking twice.
const maxSpellings = 4

// A table holds the entries, by name without regard to case. To find one takes no lock and makes
// nothing; to add one copies the table.
type table struct {
	most  int
	names atomic.Pointer[map[string]*entry]
	mu    sync.Mutex // held by writers
	size  int        // entries
}

// find returns the entry of a name, nil when there is none.
func (t *table) find(name string) *entry {
	names := t.names.Load()
	if names == nil {
		return nil
	}
	if e := (*names)[name]; e != nil {
		return e
	}
	folded := strings.ToLower(name)
	if folded == name {
		return nil
	}
	return (*names)[folded]
}

// all returns the names of the entries.
func (t *table) all() (all []string) {
	names := t.names.Load()
	if names == nil {
		return nil
	}
	for spelling, e := range *names {
		if spelling == e.spellings[0] {
			all = append(all, e.name)
		}
	}
	return all
}

// add returns the entry of a name, and makes one if there is none.
func (t *table) add(name string) *entry {
	if names := t.names.Load(); names != nil {
		if e := (*names)[name]; e != nil {
			return e
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var names map[string]*entry
	if old := t.names.Load(); old != nil {
		names = maps.Clone(*old)
	} else {
		names = map[string]*entry{}
	}
	folded := strings.ToLower(name)
	e := names[folded]
	if e == nil {
		if t.size >= t.most {
			t.evict(names)
		}
		e = &entry{name: name, spellings: []string{folded}}
		e.use(time.Now())
		names[folded] = e
		t.size++
	}
	if names[name] == nil && len(e.spellings) < maxSpellings {
		names[name] = e
		e.spellings = append(e.spellings, name)
	}
	t.names.Store(&names)
	return e
}

// evict takes the entry out of names that was not asked for longest.
func (t *table) evict(names map[string]*entry) {
	var oldest *entry
	for _, e := range names {
		if oldest == nil || e.used.Load() < oldest.used.Load() {
			oldest = e
		}
	}
	for _, s := range oldest.spellings {
		delete(names, s)
	}
	t.size--
}
