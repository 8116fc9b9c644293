// SPDX-License-Identifier: Apache-2.0

// Package scan expires overdue messages by hand: it receives from the head of a queue or session,
// dead-letters what is overdue, and releases the rest unchanged.
package scan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"

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
	most     = 200  // credits granted at once, at most
	grow     = 4    // growth from one complete batch to the next
	mostHeld = 5000 // messages that a scan holds at most
	// Wait is how long a scan waits for the first message of a batch, and gap for each of the
	// others.
	Wait = 250 * time.Millisecond
	gap  = 20 * time.Millisecond
	// Time bounds a scan, well below the shortest lock duration (5 s), so that no lock lapses
	// meanwhile: that would raise the delivery count of a live message.
	Time = 2 * time.Second

	settleTime = 10 * time.Second // bounds each dead-lettering
)

// Target is a message that a scan searches for.
type Target struct {
	search.Identity
	Deadline time.Time // by the clock of the broker
	Outcome  Outcome
}

// Outcome is what became of a target.
type Outcome int

const (
	NotFound     Outcome = iota // a consumer has locked it, or it is gone
	Early                       // by the clock of the broker: it was released
	DeadLettered                // by the scan
	CutOff                      // the scan has dead-lettered others, and ended before it
)

// Config configures a scan. All fields are required, unless they say otherwise.
type Config struct {
	Receiver   *link.Receiver // without credit
	Session    bool           // it receives from a session, whose messages nobody else has
	Unordered  bool           // sequence numbers do not show the order
	Work       *search.View   // of the queue
	Clock      *judge.Clock
	Lock       time.Duration // of the queue; 0: unknown
	Granted    func() error  // is called after each grant of credit, and ends before the next one
	Kept       *search.Kept  // gets the dead letters of other companions
	Operations *operations.Counter
}

// scan is the state of one scan.
type scan struct {
	Config
	sought map[search.Identity]*Target // until they are found
	last   int64                       // the highest of their numbers
	live   []*link.ReceivedMessage     // received, to be released
	met    int                         // received
	now    time.Time                   // by the broker's clock, and not ahead of it
	cut    bool                        // it ended before the queue, and before all were found

	ahead   []int64 // waiting sequence numbers up to the last one sought, as far as peeked
	peeked  int64   // where the next peek begins
	reached bool    // the peeks have reached the end

	settling errgroup.Group
	mu       sync.Mutex
	dead     []*Target // dead-lettered
}

// Run receives until it has found each target, and sets their outcomes. It dead-letters these and
// releases the others unchanged.
func Run(ctx context.Context, cfg Config, targets []*Target) error {
	s := newScan(cfg, targets)
	err := s.run(ctx)
	// The scan releases the live messages in any case, and only at the end: earlier they would be at
	// the head again. It does not wait for what it dead-letters meanwhile: their locks would lapse.
	released, releaseErr := s.Receiver.GiveBack(ctx, s.live...)
	s.Operations.Add(operations.Release, released)
	err = errors.Join(err, releaseErr, s.settling.Wait())
	for _, t := range s.dead {
		t.Outcome = DeadLettered
	}
	if s.cut && len(s.dead) > 0 {
		for _, t := range s.sought {
			t.Outcome = CutOff
		}
	}
	return err
}

func newScan(cfg Config, targets []*Target) *scan {
	s := &scan{Config: cfg, sought: map[search.Identity]*Target{}, now: cfg.Clock.Now().Add(-cfg.Clock.Grain())}
	for _, t := range targets {
		s.sought[t.Identity] = t
		s.last = max(s.last, t.Number)
	}
	return s
}

func (s *scan) run(ctx context.Context) error {
	end := time.Now().Add(Time)
	for batch := 1; len(s.sought) > 0 && s.met < mostHeld && time.Now().Before(end); batch = min(batch*grow, most) {
		credit, err := s.credit(ctx, batch)
		if err != nil || credit == 0 {
			return err
		}
		if err := s.Receiver.Grant(ctx, uint32(credit)); err != nil {
			return err
		}
		var reading errgroup.Group
		reading.Go(s.Granted)
		met, passed, err := s.batch(ctx, credit, end)
		if err = errors.Join(err, reading.Wait()); err != nil {
			return err
		}
		if passed || met < credit && time.Now().Before(end) {
			return nil // beyond the last one sought, or at the end of the available messages
		}
	}
	s.cut = len(s.sought) > 0
	return nil
}

// credit returns how many messages to request at most: as many as a peek shows up to the last one
// sought. A peek also shows locked messages, and for each of those a later one is delivered. So the
// first batch is one message: if that is behind the last one sought, all of them are locked. Each
// complete batch shows that the connection does not stall, and the next one is larger: messages in
// transit during a stall stay locked.
//
// In a session no other receiver has locks, and in a partitioned entity numbers do not show the
// order.
func (s *scan) credit(ctx context.Context, batch int) (int, error) {
	if s.Session || s.Unordered {
		return batch, nil
	}
	for len(s.ahead) == 0 && !s.reached {
		// Only this goroutine uses the view: there is one scope.
		page, err := s.Work.Peek(ctx, s.peeked, search.PageSize)
		if err != nil {
			return 0, err
		}
		s.reached = len(page) == 0
		for _, m := range page {
			if s.peeked = m.SequenceNumber + 1; m.SequenceNumber > s.last {
				s.reached = true
				break
			}
			if m.State == link.Active || m.State == link.Scheduled && !search.Pending(m) {
				s.ahead = append(s.ahead, m.SequenceNumber)
			}
		}
	}
	return min(batch, len(s.ahead)), nil
}

// pass records that messages up to a sequence number were received, or are locked.
func (s *scan) pass(number int64) {
	i, _ := slices.BinarySearch(s.ahead, number+1)
	s.ahead = s.ahead[i:]
	s.peeked = max(s.peeked, number+1)
}

// batch receives until the credit is used up, no more messages arrive, or the scan has passed all
// of those sought. It drains the remaining credit.
func (s *scan) batch(ctx context.Context, credit int, end time.Time) (met int, passed bool, err error) {
	wait := Wait
	for met < credit && time.Now().Before(end) {
		m, err := s.Receiver.Receive(ctx, wait)
		if err != nil {
			return met, passed, err
		}
		if m == nil {
			break
		}
		wait = gap
		met++
		if s.meet(ctx, m) {
			passed = true
			break
		}
	}
	if met == credit {
		return met, passed, nil
	}
	if err := s.Receiver.Drain(ctx); err != nil {
		return met, passed, err
	}
	for m := s.Receiver.Prefetched(); m != nil; m = s.Receiver.Prefetched() {
		met++
		s.meet(ctx, m)
	}
	return met, passed, nil
}

// meet dead-letters m if it is sought or overdue, and otherwise keeps it for release. It reports
// whether the scan has passed all that is sought.
func (s *scan) meet(ctx context.Context, m *link.ReceivedMessage) (passed bool) {
	at := search.IdentityOf(&m.Message)
	s.Operations.Add(operations.Scan, 1)
	s.met++
	s.pass(at.Number)
	if t := s.sought[at]; t != nil {
		delete(s.sought, at)
		if s.Clock.IsEarly(t.Deadline, m.LockedUntil, s.Lock) {
			t.Outcome = Early
			s.live = append(s.live, m)
		} else {
			s.settling.Go(func() error { return s.deadLetter(ctx, t, m, t.Deadline) })
		}
		return len(s.sought) == 0
	}
	if deadline, stated := s.overdue(m); stated && !s.Clock.IsEarly(deadline, m.LockedUntil, s.Lock) {
		s.settling.Go(func() error { return s.deadLetter(ctx, nil, m, deadline) })
	} else {
		s.live = append(s.live, m)
	}
	return at.Number > s.last && !s.Unordered // whose numbers are not in the order of arrival
}

// overdue reports whether m, which is not sought, states a deadline that has passed: another
// monitor has its companion, or it is about to become due. One scan serves all overdue messages,
// since several scans would obstruct each other. The holder of the companion finds the dead letter,
// and notifies of it.
func (s *scan) overdue(m *link.ReceivedMessage) (deadline time.Time, yes bool) {
	at, within, err := scheduler.StatedDeadline(func(name string) any { return m.Properties[name] })
	switch {
	case m.EnqueuedTime.IsZero() || err != nil:
		return time.Time{}, false
	case within > 0:
		at = m.EnqueuedTime.Add(within)
	case at.IsZero():
		return time.Time{}, false
	}
	return at, !at.After(s.now)
}

// deadLetter dead-letters m, which is t; nil: it was not sought.
func (s *scan) deadLetter(ctx context.Context, t *Target, m *link.ReceivedMessage, deadline time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	err := s.Receiver.DeadLetter(ctx, m, Reason, Description(deadline))
	switch c := link.Condition(err); {
	case c == link.ConditionLockLost || c == link.ConditionSessionLost:
		return nil // the next check shows its outcome
	case err != nil:
		return fmt.Errorf("dead-letter: %w", err)
	}
	s.Operations.Add(operations.DeadLetter, 1)
	if t == nil {
		s.keep(m)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = append(s.dead, t)
	return nil
}

// keep shows m, which was just dead-lettered for a companion that is not in this scan, to the check
// of that companion. A consumer may take the dead letter before.
func (s *scan) keep(m *link.ReceivedMessage) {
	letter := m.Message
	letter.DeadLetterReason = Reason
	s.Kept.Add([]*link.Message{&letter})
}
