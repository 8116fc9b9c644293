// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"sync"
	"time"

	"overdue/monitor/nudge"
	"overdue/monitor/search"
)

// maxEntityStates bounds the entities whose state is kept.
const maxEntityStates = 10_000

// entityState is what a worker has observed of one entity.
type entityState struct {
	sessions   bool      // a receiver without a session was refused
	noSessions bool      // a receiver without a session was accepted
	warned     bool      // the warning about dropped messages was logged
	created    time.Time // by the clock of the namespace; zero: unknown

	// By our clock.
	missing time.Time // since when it does not exist; zero: it does

	deadLetters search.Letters
	lateLetters bool // a dead letter was found late
	order       nudge.Order
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
