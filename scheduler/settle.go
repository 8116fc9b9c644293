// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"time"

	"overdue/scheduler/index"
)

// Expect notes that messages with these references are about to be sent to entity. It MUST be
// called before they leave, for those of every send: only then is it known which settlement could
// mean which.
func (s *Scheduler) Expect(entity string, refs []Reference) {
	s.index.Put(entity, indexed(entity, refs))
}

// ExpectInSlots is Expect for messages for which slots stand, and that the broker stamps at the
// instant until of its clock at the latest. The index does not know them, so for what is stamped by
// then it cannot know which message was settled.
func (s *Scheduler) ExpectInSlots(entity string, until time.Time) { s.index.Forbid(entity, until) }

// Confirm notes that the broker has accepted the messages, each once. Only those can be settled
// early; it must not be called for messages that may be in the queue twice, or that the broker
// stamps later.
func (s *Scheduler) Confirm(entity string, refs []Reference) {
	if now := s.Now(); now.Measured {
		s.index.Confirm(indexed(entity, refs), now.Time.Add(now.Uncertainty))
	}
}

// Refuse notes that the broker has refused the messages. Their companions are checked as any other:
// a send that is repeated may be refused after it was accepted. If nothing is found, there was no
// deadline.
func (s *Scheduler) Refuse(entity string, refs []Reference) {
	s.index.Refuse(indexed(entity, refs))
}

// Refused reports whether the message that r was sent with is known to be refused.
func (s *Scheduler) Refused(entity string, r *Reference) bool {
	return s.index.Refused(r.indexed(entity))
}

// Expects returns the key by which a message of entity is known that may have been sent from here,
// and that of no message for others.
func (s *Scheduler) Expects(entity string, messageID, sessionID []byte) index.Key {
	return s.index.Expects(entity, messageID, sessionID)
}

// BeginSettle notes that a consumer settles a message, and that the broker may have heard of it.
func (s *Scheduler) BeginSettle(d index.Delivered) {
	s.settlements.Begin(d.Entity, d.Number, d.Enqueued)
}

// Settle notes that the broker has confirmed that a message is off its queue. A companion that
// waits for no other is cancelled, if that is worth it; otherwise it is known to be needless when
// it becomes due here.
func (s *Scheduler) Settle(d index.Delivered) {
	s.settlements.Confirm(d.Entity, d.Number, d.Enqueued)
	if d.Key != (index.Key{}) {
		s.index.Take(d)
	}
}

// IsSettled reports whether the message of a queue, or of a subscription by its path, was settled
// lately, whatever its companion names. Otherwise it reports whether the message may have been
// settled: its settlement is not confirmed.
func (s *Scheduler) IsSettled(entity string, number int64, enqueued time.Time) (settled, maybe bool) {
	return s.settlements.Has(entity, number, enqueued)
}

// Settled reports whether the message that r was sent with is known to be settled.
func (s *Scheduler) Settled(entity string, r *Reference) bool {
	return s.index.Taken(r.indexed(entity))
}

// Watches reports whether this process knows of a companion that finds the message of r, which was
// found at path, a queue of that name or a subscription of entity. The companion names it, or a
// slot stands for it. Watches does not know companions that other processes have sent, or this one
// long ago.
func (s *Scheduler) Watches(entity, path string, r *Reference) bool {
	if s.index.Carries(r.indexed(entity)) {
		return true
	}
	if path != entity || r.Within <= 0 || r.Stated == StatedComplete || r.Ahead > 0 {
		return false
	}
	return s.slots.hasSlotOf(entity, r)
}

// Waiting returns how many messages have companions on a monitor queue that are due after an
// instant, by entity. It knows those that this process wrote lately, and not as slots.
func (s *Scheduler) Waiting(queue string, after time.Time) map[string]int {
	waiting := s.index.Waiting(after)
	maps.DeleteFunc(waiting, func(entity string, _ int) bool { return s.queues.For(entity) != queue })
	return waiting
}

// indexed is r as the index knows it.
func (r *Reference) indexed(entity string) index.Reference {
	in := index.Reference{Deadline: r.Deadline.UnixNano(), Within: int64(r.Within)}
	if !r.WithoutID() {
		in.Key = index.KeyOf(entity, r.MessageID, r.SessionID)
	}
	if !r.From.IsZero() {
		in.From, in.Until = r.From.UnixNano(), r.Until.UnixNano()
	}
	return in
}

func indexed(entity string, refs []Reference) []index.Reference {
	all := make([]index.Reference, len(refs))
	for i := range refs {
		all[i] = refs[i].indexed(entity)
	}
	return all
}
