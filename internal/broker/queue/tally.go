// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"maps"
	"strings"
	"sync"
)

// The reasons of a Tally that are none of a message's.
const (
	ReasonNone  = "none"  // a client gave none
	ReasonOther = "other" // one of those beyond maxReasons, or one that is too long
)

// Reasons of apps are any text, such as that of an exception.
const (
	maxReasons     = 50
	maxReasonBytes = 128
)

// A Tally counts dead letters by their reason, see Config.DeadLetters. Its zero value is ready. Queues
// may share one.
type Tally struct {
	mu    sync.Mutex // the last to be taken
	count map[string]uint64
}

// add counts messages that have just been dead-lettered. Of a wave most have the same reason.
func (t *Tally) add(dead []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(dead) > 0 {
		reason, n := dead[0].extra.reason, 1
		for n < len(dead) && dead[n].extra.reason == reason {
			n++
		}
		t.addLocked(reason, uint64(n))
		dead = dead[n:]
	}
}

func (t *Tally) addLocked(reason string, n uint64) {
	reason = strings.ToValidUTF8(reason, "?")
	if t.count == nil {
		t.count = make(map[string]uint64)
	}
	_, known := t.count[reason]
	switch {
	case known:
	case reason == "":
		reason = ReasonNone
	case len(reason) > maxReasonBytes, len(t.count) >= maxReasons:
		reason = ReasonOther
	}
	t.count[reason] += n
}

// Counts returns how many dead letters there were, by reason.
func (t *Tally) Counts() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.count)
}
