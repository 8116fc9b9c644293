// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"overdue/scheduler"
)

// A message has the fields of a message that the send path needs, whichever endpoint it came
// through. The endpoint keeps the rest.
type message struct {
	ID        string // "" = none
	SessionID string // "" = none

	TTL                  time.Duration // of its header, whole milliseconds; 0 = none
	ScheduledEnqueueTime time.Time     // whole milliseconds; zero = at once
	Size                 int64         // bytes of its body
	encoded              []byte        // as the app sent it by AMQP; never changed
	// Delay is by how much later than usual the broker may enqueue the message: at the end of its
	// transaction, for example.
	Delay time.Duration

	// Property returns an application property by name, or nil. The function itself is nil when
	// the message has no properties.
	Property func(name string) any

	// Stamp is the TTL that the endpoint must put on the message. promiseOf sets it; 0 leaves the
	// TTL unchanged.
	Stamp time.Duration
	// GivenID is the message-id that the endpoint must put on the message, which has none. See
	// giveIDs; "" leaves the message without an id.
	GivenID string
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
			pr.of = i
			promises = append(promises, pr)
		}
	}
	return promises, nil
}

// giveIDs gives an id to the messages that have none, so that their companions can name them.
func (s *send) giveIDs() {
	for i := range s.promises {
		if m := s.ms[s.promises[i].of]; m.ID == "" && m.GivenID == "" {
			m.GivenID = newMessageID()
		}
	}
}

// newMessageID returns a unique id. It is short, because an app may have filled its batch to the
// last byte. It need not be secret, so the generator asks the system for a seed only, and not for
// each message of a batch.
func newMessageID() string {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	binary.BigEndian.PutUint32(b[8:], rand.Uint32())
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// refer builds the references for the companions. Call it once the TTLs and ids of the messages
// are final.
func (s *send) refer() {
	if s.slotted {
		s.referToSlots()
		return
	}
	s.nameMessages()
	s.refs = make([]scheduler.Reference, len(s.promises))
	context := s.tracePromises(s.promises[0].ref.MessageID)
	for i := range s.promises {
		s.promises[i].ref.Traceparent = context
		s.refs[i] = s.promises[i].ref
	}
	s.refs = distinct(s.refs)
	s.p.cfg.Scheduler.Expect(s.entity, s.refs)
}

// referToSlots builds references without names. One covers all messages with the same time to live
// from the same source. The source matters because the entity's default may change later.
func (s *send) referToSlots() {
	until := s.now.StampedBy()
	r := scheduler.Reference{From: s.promises[0].ref.From, Until: until}
	for i := range s.promises {
		ref := &s.promises[i].ref
		ref.Until = until
		if i == 0 || ref.Within != r.Within || ref.Stated != r.Stated {
			r.Within, r.Stated = ref.Within, ref.Stated
			s.refs = append(s.refs, r)
		}
	}
	s.tracePromises("")
	s.p.cfg.Scheduler.ExpectInSlots(s.entity, until.Add(sendWindow))
}

// mayUseSlots reports whether slots can stand for the messages: the monitor finds each without its
// name, and enough messages come. The journal keeps references only, so with a journal there are
// no slots.
func (s *send) mayUseSlots() bool {
	if !s.settings.Findable || s.p.cfg.Journal != nil {
		return false
	}
	var room [8]time.Duration
	lives := slices.Grow(room[:0], len(s.promises))
	for i := range s.promises {
		if !s.promises[i].findable {
			return false
		}
		lives = append(lives, s.promises[i].ref.Within)
	}
	return s.p.cfg.Scheduler.Pays(s.entity, lives, s.now)
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

// nameMessages puts the ids of the messages into their references.
//
// An SDK may have filled a batch to the last byte that the broker takes, which leaves no room for
// ids. The companion then states the window in which the broker enqueued the message, and its
// deadline. It stands for every message without an id in that window: see docs/decisions/0014.
func (s *send) nameMessages() {
	for i := range s.promises {
		pr := &s.promises[i]
		m, ref := s.ms[pr.of], &pr.ref
		if ref.MessageID = cmp.Or(m.ID, m.GivenID); ref.MessageID != "" {
			continue
		}
		ref.SessionID = ""
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
