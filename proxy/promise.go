// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"slices"
	"time"

	"overdue/scheduler"
)

// A message is what the send path has to know of a message, whichever endpoint it came
// through. The endpoint keeps the rest.
type message struct {
	ID           string // "" = it goes without an id, see withoutIDs
	SessionID    string // "" = none
	PartitionKey string // "" = none

	TTL                  time.Duration // of its header, whole milliseconds; 0 = none
	ScheduledEnqueueTime time.Time     // whole milliseconds; zero = at once
	Size                 int64         // bytes of its body
	// Delay is how much later than any other message the broker may enqueue this one: at the end of
	// its transaction, say.
	Delay time.Duration

	// Property is the application property of that name, nil when there is none. It is nil itself when
	// the message has none at all.
	Property func(name string) any

	// Stamp is set by promiseOf: the TTL that the endpoint has to put on the message. 0 leaves it
	// as it is.
	Stamp time.Duration
}

// promise works out what the messages are promised, and which TTLs they need.
func (s *send) promise() (err error) {
	if err := s.checkSize(); err != nil || !s.settings.Monitored {
		return err
	}
	if s.unreadable != nil {
		return s.unreadable
	}
	s.companionFirst = s.companionFirst || s.p.companionFirst.Load()
	// What was sent settled goes on whatever becomes of its companions, so they need not go first.
	s.companionFirst = s.companionFirst && !s.settled
	s.now = s.p.cfg.Scheduler.Now()
	s.promises, err = promiseAll(s.ms, s.settings, s.now)
	return err
}

// checkSize holds the bodies against the entity's own bound, where there is one.
func (s *send) checkSize() error {
	limit := s.settings.MaxMessageSize
	if limit == 0 {
		return nil
	}
	for _, m := range s.ms {
		if m.Size > limit {
			return fmt.Errorf("%w: body of %d bytes, at most %d", errTooLarge, m.Size, limit)
		}
	}
	return nil
}

// promiseAll works out the promise of every message that has a deadline.
func promiseAll(ms []*message, settings Settings, now scheduler.Instant) ([]promise, error) {
	promises := make([]promise, 0, len(ms))
	for i, m := range ms {
		pr, ok, err := promiseOf(m, settings, now)
		if err != nil {
			return nil, ofBatch(err, i, len(ms))
		}
		if ok {
			pr.of, pr.stamped = i, m.Stamp
			promises = append(promises, pr)
		}
	}
	return promises, nil
}

// refer writes down what the companions are to say, once it is certain what the messages have on
// them.
func (s *send) refer() {
	s.withoutIDs()
	var room [8]time.Duration
	if lives := s.slots(room[:0]); len(lives) > 0 {
		s.slotted = true
		until := s.now.StampedBy()
		for i := range s.promises {
			s.promises[i].ref.Until = until
		}
		// Slots need no names. One reference is enough for all that have the same time to live,
		// and from the same: what the entity gives today its next default does not say.
		r := scheduler.Reference{From: s.promises[0].ref.From, Until: until}
		for i, life := range lives {
			if stated := s.promises[i].ref.Stated; i == 0 || life != r.Within || stated != r.Stated {
				r.Within, r.Stated = life, stated
				s.refs = append(s.refs, r)
			}
		}
		s.p.cfg.Scheduler.ExpectInSlots(s.entity, until.Add(sendWindow))
		return
	}
	s.refs = make([]scheduler.Reference, len(s.promises))
	for i := range s.promises {
		s.promises[i].ref.Once = s.once
		s.refs[i] = s.promises[i].ref
	}
	s.refs = distinct(s.refs)
	s.p.cfg.Scheduler.Expect(s.entity, s.refs)
}

// slots appends the times to live of the messages if slots are to stand for them: where all are
// found without a name, and many come. The journal keeps references alone.
func (s *send) slots(lives []time.Duration) []time.Duration {
	if !s.settings.Findable || s.p.cfg.Journal != nil {
		return nil
	}
	lives = slices.Grow(lives, len(s.promises))
	for i := range s.promises {
		if !s.promises[i].findable {
			return nil
		}
		lives = append(lives, s.promises[i].ref.Within)
	}
	if !s.p.cfg.Scheduler.Pays(s.entity, lives, s.now) {
		return nil
	}
	return lives
}

// late returns the references for second companions. A companion names the window in which the
// broker has stamped the message. A send that was retried, or slow, may have been stamped later:
// then a second companion, with a window up to now, is accepted before the app has its outcome.
func (s *send) late() (late []scheduler.Reference) {
	if len(s.promises) == 0 {
		return nil
	}
	now := s.p.cfg.Scheduler.Now()
	for i := range s.promises {
		pr := &s.promises[i]
		if n := len(late); s.slotted && n > 0 && late[n-1].Within == pr.ref.Within {
			continue // one is enough for slots
		}
		if ref, ok := pr.widened(now); ok {
			late = append(late, ref)
		}
	}
	return distinct(late)
}

// mayGoWithoutID reports whether messages can be found without an id: where it is known when the
// broker enqueues them.
func (s *send) mayGoWithoutID() bool { return s.now.Measured }

// withoutIDs takes over to the promises which messages go without an id, or without a stamp.
//
// A message without an id gets one, by which its companion names it. An SDK may have filled a
// batch to the last byte that the broker takes, so that there is no room for ids. The companion
// then says when the broker has enqueued the message and what its deadline is, and stands for
// whatever is found in that window: see docs/decisions.
func (s *send) withoutIDs() {
	for i := range s.promises {
		pr := &s.promises[i]
		m := s.ms[pr.of]
		if m.Stamp != pr.stamped {
			pr.findable = false // the broker does not expire it then
		}
		if m.ID != "" {
			continue
		}
		ref := &pr.ref
		ref.MessageID, ref.SessionID, ref.PartitionKey = "", "", ""
		if s.settings.Findable && m.ScheduledEnqueueTime.IsZero() {
			// The shorter the window, the fewer others are found in it. A send that takes longer
			// gets a second companion.
			ref.Until = s.now.StampedBy().Add(m.Delay)
		}
	}
}

// distinct leaves one of the references without a name that stand for the same messages.
func distinct(refs []scheduler.Reference) []scheduler.Reference {
	first := 0
	for first < len(refs) && !refs[first].WithoutID() { // all of them, mostly
		first++
	}
	if first == len(refs) {
		return refs
	}
	out, seen := refs[:first], map[scheduler.Reference]bool{}
	for _, r := range refs[first:] {
		if r.WithoutID() && seen[r] {
			continue
		}
		seen[r] = r.WithoutID()
		out = append(out, r)
	}
	return out
}
