// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"sync"
	"time"
)

// maxEntityStates bounds the entities whose state is kept.
const maxEntityStates = 10_000

// entityState is what a worker has observed of one entity.
type entityState struct {
	sessions    bool      // a receiver without a session was refused
	noSessions  bool      // one was not
	disappeared int       // passes whose nudge made messages go that were in no dead-letter queue afterwards, less those where they were
	warned      bool      // that it drops what expires
	created     time.Time // when the entity was made, by the clock of the namespace; zero = not known

	missing          time.Time // by our clock: since when it does not exist, as the broker says; zero = it does, as far as is known
	missed           time.Time // by our clock: when a deadline was last seen to have been missed
	suspected        time.Time // by our clock: when it was last taken for likely that deadlines are missed
	notFound         time.Time // by our clock: when dead letters were last not found that a nudge should have left, and nothing spoke against it
	taken            time.Time // by our clock: when one that had been found was last gone
	firstLetter      identity  // the first dead letter when something had disappeared; zero = there was none
	firstLetterSince time.Time // by our clock: when it was first seen then
	recentLetter     identity  // one that was seen shortly before, and lies there as far as is known; zero = none
}

// entityStates keeps the states by entity. A dropped state is observed again.
type entityStates struct {
	mu sync.Mutex
	m  map[string]entityState
}

func (f *entityStates) get(key string) entityState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.m[key]
}

// update changes the state of an entity.
func (f *entityStates) update(key string, change func(*entityState)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.m[key]
	if f.m == nil || !ok && len(f.m) == maxEntityStates {
		f.m = map[string]entityState{}
	}
	change(&known)
	f.m[key] = known
}
