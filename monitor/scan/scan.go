// SPDX-License-Identifier: Apache-2.0

// Package scan expires overdue messages by hand: it receives from the head of a queue or session,
// dead-letters what is overdue, and releases the rest unchanged.
package scan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"

	"golang.org/x/sync/errgroup"
)

// Reason is the dead-letter reason of messages that the monitor dead-letters: their deadline came
// before the end of their time to live.
const Reason = "DeadlineExceeded"

// Description is the dead-letter description of such a message.
func Description(deadline time.Time) string {
	return fmt.Sprintf("The message was not received by its deadline %s.", deadline.UTC().Format(time.RFC3339Nano))
}

const (
	maxHeld = 5000 // messages under lock
	// maxTime bounds a scan, well below the shortest lock duration (5 s), so that no lock lapses
	// meanwhile: that would raise the delivery count of a live message.
	maxTime = 2 * time.Second
)

// Target is a message that a scan searches for.
type Target struct {
	search.Identity
	Deadline time.Time // by the clock of the broker
	Outcome  Outcome
}

// Outcome is what became of a target.
type Outcome int

// The outcomes of a scan.
const (
	NotFound     Outcome = iota // a consumer has locked it, or it is gone
	Early                       // by the clock of the broker: it was released
	DeadLettered                // by the scan
	CutOff                      // the scan has dead-lettered others, and ended before it
)

// Config configures a scan. All fields are required, unless they say otherwise.
type Config struct {
	Receiver   *link.Receiver // without credit
	Unordered  bool           // sequence numbers are not in the order of the queue
	Clock      *judge.Clock
	Lock       time.Duration // of the queue; 0: unknown
	Operations *operations.Counter
}

// scan is the state of one scan.
type scan struct {
	Config
	sought map[search.Identity]*Target // until they are found
	last   int64                       // the highest of their numbers
	next   int64                       // behind the highest number that was received
	live   []*link.ReceivedMessage     // to be released
	now    time.Time                   // by the broker's clock, and not ahead of it
	end    time.Time                   // of the scan, by our clock
	cut    bool                        // it ended before the queue, and before all were found

	settling errgroup.Group
	others   map[*Target]*link.Message // overdue messages that nobody sought
}

// Run receives from the head until it has found each target, and sets their outcomes. It
// dead-letters those that are overdue and releases the others unchanged. others are overdue
// messages that it has dead-lettered for another companion: a consumer may take the dead letter
// before the holder of that companion reads it.
func Run(ctx context.Context, cfg Config, targets []*Target) (others []*link.Message, err error) {
	s := &scan{
		Config: cfg,
		sought: map[search.Identity]*Target{},
		now:    cfg.Clock.Now().Add(-cfg.Clock.Grain()),
		end:    time.Now().Add(maxTime),
		others: map[*Target]*link.Message{},
	}
	for _, t := range targets {
		s.sought[t.Identity] = t
		s.last = max(s.last, t.Number)
	}
	err = s.receive(ctx)
	// A live message that was released earlier would be at the head again. But none waits for the
	// answers about dead ones: its lock would lapse.
	released, releaseErr := s.Receiver.GiveBack(ctx, s.live...)
	s.Operations.Add(operations.Release, released)
	err = errors.Join(err, releaseErr, s.settling.Wait())
	if s.cut && slices.ContainsFunc(targets, func(t *Target) bool { return t.Outcome == DeadLettered }) {
		for _, t := range s.sought {
			t.Outcome = CutOff
		}
	}
	for t, letter := range s.others {
		if t.Outcome == DeadLettered {
			others = append(others, letter)
		}
	}
	return others, err
}

// receive receives batches until there is nothing more to find. The first one is a single message:
// if that is behind the last target, a consumer has locked all of them. Each may be four times the
// one before, but no more than can stand up to the last target. A complete one shows that the
// connection does not stall: messages in transit during a stall stay locked.
func (s *scan) receive(ctx context.Context) (err error) {
	received, credit := 0, 1
	for more := len(s.sought) > 0; more && err == nil; credit = min(4*credit, search.PageSize) {
		if s.cut = received >= maxHeld || !time.Now().Before(s.end); s.cut {
			return nil
		}
		if !s.Unordered {
			credit = min(credit, int(s.last-s.next)+1)
		}
		more, err = s.receiveBatch(ctx, credit)
		received += credit
	}
	return err
}

// receiveBatch receives what the broker has for some credit, and takes back what is left of that.
// The others are right behind the first message, which gets a part of the time that is left. It
// reports whether there may be more to find.
func (s *scan) receiveBatch(ctx context.Context, credit int) (more bool, err error) {
	if err := s.Receiver.Grant(ctx, uint32(credit)); err != nil {
		return false, err
	}
	m, err := s.Receiver.Receive(ctx, time.Until(s.end)/8)
	if err == nil {
		err = s.Receiver.Drain(ctx)
	}
	if m == nil {
		m = s.Receiver.Prefetched()
	}
	for more = m != nil; m != nil; m = s.Receiver.Prefetched() {
		more = s.take(ctx, m) && more
	}
	return more, err
}

// take dead-letters m if it is overdue, and otherwise keeps it for release. It reports whether
// there is more to find behind it.
func (s *scan) take(ctx context.Context, m *link.ReceivedMessage) (more bool) {
	at := search.IdentityOf(&m.Message)
	t, isSought := s.sought[at]
	delete(s.sought, at)
	s.next = max(s.next, at.Number+1)
	s.Operations.Add(operations.Scan, 1)
	if !isSought {
		t = s.overdue(m)
	}
	switch {
	case t == nil:
		s.live = append(s.live, m)
	case s.Clock.IsEarly(t.Deadline, m.LockedUntil, s.Lock):
		s.live = append(s.live, m)
		t.Outcome = Early
	default:
		s.settling.Go(func() error { return s.deadLetter(ctx, t, m) })
	}
	return len(s.sought) > 0 && (s.Unordered || at.Number < s.last)
}

// overdue makes a target of m if it states a deadline that has passed: another monitor has its
// companion, or that is about to become due. One scan serves all overdue messages, since several
// scans would obstruct each other.
func (s *scan) overdue(m *link.ReceivedMessage) *Target {
	_, deadline := judge.StatedDeadline(&m.Message)
	if deadline.IsZero() || deadline.After(s.now) || m.EnqueuedTime.IsZero() {
		return nil
	}
	t := &Target{Deadline: deadline}
	letter := m.Message
	letter.DeadLetterReason = Reason
	s.others[t] = &letter
	return t
}

// deadLetter dead-letters m, which is t.
func (s *scan) deadLetter(ctx context.Context, t *Target, m *link.ReceivedMessage) error {
	err := s.Receiver.DeadLetter(ctx, m, Reason, Description(t.Deadline))
	switch c := link.Condition(err); {
	case c == link.ConditionLockLost || c == link.ConditionSessionLost:
		return nil // the next check shows its outcome
	case err != nil:
		return fmt.Errorf("dead-letter: %w", err)
	}
	s.Operations.Add(operations.DeadLetter, 1)
	t.Outcome = DeadLettered
	return nil
}
