// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"slices"
	"time"

	"overdue/scheduler"
)

// A message has the fields of a message that the send path needs, whichever endpoint it came
// through. The endpoint keeps the rest.
type message struct {
	ID           string // sent without an id, see withoutIDs
	SessionID    string // "" = none
	PartitionKey string // "" = none

	TTL                  time.Duration // of its header, whole milliseconds; 0 = none
	ScheduledEnqueueTime time.Time     // whole milliseconds; zero = at once
	Size                 int64         // bytes of its body
	// Delay is by how much later than usual the broker may enqueue the message: at the end of its
	// transaction, for example.
	Delay time.Duration

	// Property returns an application property by name, or nil. The function itself is nil when
	// the message has no properties.
	Property func(name string) any

	// Stamp is the TTL that the endpoint must put on the message. promiseOf sets it; 0 leaves the
	// TTL unchanged.
	Stamp time.Duration
}

// promise computes the promises of the messages and the TTLs that they need.
func (s *send) promise() (err error) {
	if err := s.checkSize(); err != nil || !s.settings.Monitored {
		return err
	}
	if s.unreadable != nil {
		return s.unreadable
	}
	s.companionFirst = s.companionFirst || s.p.companionFirst.Load()
	// A message that was sent settled goes on even if its companions fail, so they need not go
	// first.
	s.companionFirst = s.companionFirst && !s.settled
	s.now = s.p.cfg.Scheduler.Now()
	s.promises, err = promiseAll(s.ms, s.settings, s.now)
	return err
}

// checkSize refuses bodies beyond the entity's own limit, if it has one.
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

// promiseAll computes the promise of every message that has a deadline.
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

// refer builds the references for the companions. Call it once the TTLs and ids of the messages
// are final.
func (s *send) refer() {
	s.withoutIDs()
	var room [8]time.Duration
	if lives := s.slots(room[:0]); len(lives) > 0 {
		s.slotted = true
		until := s.now.StampedBy()
		for i := range s.promises {
			s.promises[i].ref.Until = until
		}
		// Slots need no names. One reference covers all messages with the same time to live from
		// the same source. The source matters because the entity's default may change later.
		r := scheduler.Reference{From: s.promises[0].ref.From, Until: until}
		for i, life := range lives {
			if stated := s.promises[i].ref.Stated; i == 0 || life != r.Within || stated != r.Stated {
				r.Within, r.Stated = life, stated
				s.refs = append(s.refs, r)
			}
		}
		s.tracePromises("")
		s.p.cfg.Scheduler.ExpectInSlots(s.entity, until.Add(sendWindow))
		return
	}
	s.refs = make([]scheduler.Reference, len(s.promises))
	context := s.tracePromises(s.promises[0].ref.MessageID)
	for i := range s.promises {
		s.promises[i].ref.Traceparent = context
		s.promises[i].ref.Once = s.once
		s.refs[i] = s.promises[i].ref
	}
	s.refs = distinct(s.refs)
	s.p.cfg.Scheduler.Expect(s.entity, s.refs)
}

// slots appends the times to live of the messages if slots can stand for them: the monitor finds
// each without its name, and enough messages come. The journal keeps references only, so with a
// journal there are no slots.
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
// broker has stamped the message. If a send was slow or retried, the broker may have stamped the
// message later. A second companion, with a window up to now, is then accepted before the app has
// its outcome.
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

// mayGoWithoutID reports whether the monitor can find messages without an id. It needs the
// broker's clock to know when they were enqueued.
func (s *send) mayGoWithoutID() bool { return s.now.Measured }

// withoutIDs updates the promises of messages that are sent without an id or without a stamp.
//
// A message without an id gets one, by which its companion names it. An SDK may have filled a
// batch to the last byte that the broker takes, which leaves no room for ids. The companion then
// states the window in which the broker enqueued the message, and its deadline. It stands for
// every message without an id in that window: see docs/decisions/0014.
func (s *send) withoutIDs() {
	for i := range s.promises {
		pr := &s.promises[i]
		m := s.ms[pr.of]
		if m.Stamp != pr.stamped {
			pr.findable = false // the broker does not expire it
		}
		if m.ID != "" {
			continue
		}
		ref := &pr.ref
		ref.MessageID, ref.SessionID, ref.PartitionKey = "", "", ""
		if s.settings.Findable && m.ScheduledEnqueueTime.IsZero() {
			// A short window holds fewer other messages. A send that takes longer gets a second
			// companion.
			ref.Until = s.now.StampedBy().Add(m.Delay)
		}
	}
}

// distinct removes duplicates among references without an id.
func distinct(refs []scheduler.Reference) []scheduler.Reference {
	first := 0
	for first < len(refs) && !refs[first].WithoutID() { // usually all
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
