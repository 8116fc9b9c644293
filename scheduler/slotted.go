// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync/atomic"
	"time"
)

// slotted is until when messages may be stamped for which slots stand, by a hash of their entity.
// Two entities with one hash share the later instant. The zero value is ready.
type slotted [256]atomic.Int64 // nanoseconds of Unix time

func (s *slotted) of(entity string) *atomic.Int64 {
	h := uint32(2166136261) // FNV-1a, of the lower case
	for i := range len(entity) {
		c := entity[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		h = (h ^ uint32(c)) * 16777619
	}
	return &s[h%uint32(len(s))]
}

// ExpectInSlots is Expect for messages for which slots stand, and that the broker stamps at the
// instant until of its clock at the latest. The index does not know them, so for what is stamped by
// then it cannot know which message was settled.
func (s *Scheduler) ExpectInSlots(entity string, until time.Time) {
	latest := s.slotted.of(entity)
	for at := until.UnixNano(); ; {
		was := latest.Load()
		if was >= at || latest.CompareAndSwap(was, at) {
			return
		}
	}
}

// InSlots reports whether a slot may stand for a message of entity that has been stamped with the
// instant at.
func (s *Scheduler) InSlots(entity string, at time.Time) bool {
	return at.UnixNano() <= s.slotted.of(entity).Load()
}
