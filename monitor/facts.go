// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"sync"
	"time"
)

// maxFacts bounds the entities of which something is remembered while nothing is due there.
const maxFacts = 10_000

// fact is what a worker has learnt of one entity and nobody has told it.
type fact struct {
	sessions bool      // a receiver without a session was refused
	plain    bool      // one was not
	vanished int       // passes whose nudge made messages go that were in no dead-letter queue afterwards, less those where they were
	warned   bool      // that it drops what expires
	created  time.Time // when the entity was made, by the clock of the namespace; zero = not known

	missing   time.Time // by our clock: since when it does not exist, as the broker says; zero = it does, as far as is known
	missed    time.Time // by our clock: when a deadline was last seen to have been missed
	suspected time.Time // by our clock: when it was last taken for likely that deadlines are missed
	unfound   time.Time // by our clock: when dead letters were last not found that a nudge should have left, and nothing spoke against it
	taken     time.Time // by our clock: when one that had been found was last gone
	lies      seat      // the first dead letter when something had vanished; zero = there was none
	liesSince time.Time // by our clock: when it was first seen then
	letter    seat      // one that was seen shortly before, and lies there as far as is known; zero = none
}

// facts remembers. What is forgotten is learnt anew.
type facts struct {
	mu sync.Mutex
	m  map[string]fact
}

func (f *facts) of(key string) fact {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.m[key]
}

// learn changes what is known of an entity.
func (f *facts) learn(key string, change func(*fact)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.m[key]
	if f.m == nil || !ok && len(f.m) == maxFacts {
		f.m = map[string]fact{}
	}
	change(&known)
	f.m[key] = known
}
