// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// A memoryLog is a Log that forgets nothing but what is removed.
type memoryLog struct {
	t        interface{ Errorf(string, ...any) }
	last     int64
	messages map[int64]Stored
	steps    int
	sizes    []int // changes of each step
}

func newMemoryLog(t interface{ Errorf(string, ...any) }) *memoryLog {
	return &memoryLog{t: t, messages: map[int64]Stored{}}
}

func (l *memoryLog) Append(s *Step) {
	l.steps++
	l.sizes = append(l.sizes, len(s.Changes))
	if s.Last > 0 && s.Last < l.last {
		l.t.Errorf("the last number falls from %d to %d", l.last, s.Last)
	}
	l.last = max(l.last, s.Last)
	for _, c := range s.Changes {
		was, known := l.messages[c.Record]
		if known == (c.Fate == Added) {
			l.t.Errorf("record %d is known: %v, and its fate is %d", c.Record, known, c.Fate)
		}
		if c.Fate == Removed {
			delete(l.messages, c.Record)
			continue
		}
		if c.Fate == Changed { // a store keeps the content as it came
			c.Body, c.MessageID, c.SessionID = was.Body, was.MessageID, was.SessionID
			c.TTL, c.ScheduledEnqueueTime = was.TTL, was.ScheduledEnqueueTime
			c.EnqueuedSequenceNumber, c.Hops, c.DeadLetterSource = was.EnqueuedSequenceNumber, was.Hops, was.DeadLetterSource
		}
		c.Locked, c.LockedUntil = false, time.Time{}
		l.messages[c.Record] = c.Stored
	}
}

// restore makes a queue of what the log has.
func (l *memoryLog) restore(t interface{ Fatalf(string, ...any) }, cfg Config) *Queue {
	q := New(cfg)
	for _, record := range slices.Sorted(maps.Keys(l.messages)) {
		q.Restore(&Change{Record: record, Stored: l.messages[record]})
	}
	if err := q.Resume(l.last); err != nil {
		t.Fatalf("Resume = %v", err)
	}
	return q
}

// compare looks whether the log has what the queue has, and whether a restart brings it back.
func (l *memoryLog) compare(t *rapid.T, q *Queue) {
	t.Helper()
	got := map[int64]Stored{}
	for _, part := range []*Queue{q, q.dead} {
		part.entries.byNumber.ascend(-1<<63, func(e *entry) bool {
			s := part.entries.stored(e)
			s.Locked, s.LockedUntil = false, time.Time{}
			got[e.record.int64()] = s
			return true
		})
	}
	if diff := gocmp.Diff(got, l.messages, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the log differs from the queue (-queue +log):\n%s", diff)
	}
	if l.last != q.numbers.last {
		t.Fatalf("the log has the last number %d, the queue %d", l.last, q.numbers.last)
	}
	if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
		l.compareRestart(t, q)
	}
}

func (l *memoryLog) compareRestart(t *rapid.T, q *Queue) {
	t.Helper()
	cfg := q.cfg.Config
	cfg.Log = nil
	again := l.restore(t, cfg)
	defer again.Close()
	now := instantOf(cfg.Now())
	for _, m := range l.messages {
		if m.State == Scheduled && instantOf(m.ScheduledEnqueueTime) <= now {
			return // a transaction has kept it from its activation, which a restart makes up for
		}
	}
	var want, dead []View
	for _, m := range l.messages {
		v, kept := m.View, true
		if m.Delivered && !m.Dead {
			v.DeliveryCount++
		}
		if !m.Dead && (m.Delivered || cfg.Expiry == Eager && m.State == Active) {
			m.Dead, kept = givenBack(&v, m.Delivered, cfg, now)
		}
		switch {
		case m.Dead:
			dead = append(dead, v)
		case kept:
			want = append(want, v)
		}
	}
	byNumber := func(a, b View) int { return cmp.Compare(a.SequenceNumber, b.SequenceNumber) }
	slices.SortFunc(want, byNumber)
	slices.SortFunc(dead, byNumber)
	if diff := gocmp.Diff(want, again.Peek(nil, -1, len(want)+10), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("after a restart (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(dead, again.DeadLetterQueue().Peek(nil, -1, len(dead)+10), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("dead letters after a restart (-want +got):\n%s", diff)
	}
	if again.numbers.last != q.numbers.last {
		t.Fatalf("the last number after a restart is %d, want %d", again.numbers.last, q.numbers.last)
	}
	again.check(t)
	again.dead.check(t)
}

// givenBack is what becomes of a message whose last delivery may have failed.
func givenBack(v *View, failed bool, cfg Config, now instant) (dead, kept bool) {
	switch {
	case !v.ExpiresAt.IsZero() && instantOf(v.ExpiresAt) <= now:
		if !cfg.DeadLetteringOnMessageExpiration {
			return false, false
		}
		v.DeadLetterReason, v.DeadLetterErrorDescription = reasonExpired, descriptionExpired
	case failed && v.DeliveryCount >= cfg.MaxDeliveryCount:
		v.DeadLetterReason = reasonMaxDelivery
		v.DeadLetterErrorDescription = (&locks{cfg: &settings{Config: cfg}}).maxDeliveryDescription()
	default:
		return false, true
	}
	v.State, v.DeadLetteredTime = Active, now.time()
	return true, true
}

func TestDeadLetteringIsOneStep(t *testing.T) {
	log := newMemoryLog(t)
	q := New(Config{Log: log})
	defer q.Close()
	send(t, q, text("a"), text("b"))
	c := q.NewConsumer(PeekLock)
	ds := receive(c, 2)
	before := log.steps
	if errs := q.Settle(Settlement{Outcome: DeadLetter, DeadLetterReason: "r"}, ds[0].LockToken, ds[1].LockToken); errs != nil {
		t.Fatal(errs)
	}
	if got := log.sizes[before:]; !slices.Equal(got, []int{2}) {
		t.Errorf("two dead-letterings come in steps of %d changes, want one of 2", got)
	}
}

func TestNumbersAreNotGivenAgainAfterARestart(t *testing.T) {
	log := newMemoryLog(t)
	q := New(Config{Log: log, RequiresDuplicateDetection: true})
	defer q.Close()
	send(t, q, Message{MessageID: "a"})
	send(t, q, Message{MessageID: "a"}) // uses up a number
	if _, _, err := q.ReserveScheduled(Message{MessageID: "b"}); err != nil {
		t.Fatal(err)
	}
	again := log.restore(t, Config{})
	defer again.Close()
	if got := send(t, again, text("next")); got != 4 {
		t.Errorf("after a restart the next message has number %d, want 4", got)
	}
}

func TestNothingIsReportedThatHasNotChanged(t *testing.T) {
	log := newMemoryLog(t)
	q := New(Config{Log: log})
	defer q.Close()
	send(t, q, text("a"))
	before := log.steps
	q.Peek(nil, 0, 10)
	q.Counts()
	q.Wake()
	c := q.NewConsumer(PeekLock)
	c.AddCredit(1) // it lies in the outbox, and nobody has it
	c.Close()
	if log.steps != before {
		t.Errorf("%d steps without a change", log.steps-before)
	}
}
