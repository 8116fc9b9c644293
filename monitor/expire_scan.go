// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
	"overdue/scheduler"

	"golang.org/x/sync/errgroup"
)

const (
	// reasonDeadline is the dead-letter reason of messages that the monitor dead-letters: their
	// deadline came before the end of their time to live.
	reasonDeadline = "DeadlineExceeded"

	scanBatch = 200  // credits granted at once, at most
	scanGrow  = 4    // growth from one complete batch to the next
	scanMost  = 5000 // live messages that a scan holds at most
	// scanWait is how long a scan waits for the first message of a batch, and scanGap for
	// each of the others.
	scanWait = 250 * time.Millisecond
	scanGap  = 20 * time.Millisecond
	// scanTime bounds a scan, well below the shortest lock duration (5 s), so that no lock lapses
	// meanwhile: that would raise the delivery count of a live message.
	scanTime = 2 * time.Second

	maxSettling = 64               // dead-letterings under way at once
	settleTime  = 10 * time.Second // bounds each of them
)

// scan receives from the head of a scope until it has found each message of the watches. It
// dead-letters these and releases the others unchanged. If it does not find a message, a consumer
// has locked it.
func (e *entity) scan(ctx context.Context, l receiveScope) (err error) {
	r, err := e.receiver(ctx, l)
	if err != nil {
		return fmt.Errorf("monitor: scan %s: %w", e.name, err)
	}
	if r == nil {
		return nil
	}
	defer r.Close(ctx)
	s := scan{e: e, r: r, line: l, ours: map[search.Identity]*watch{}, strategy: strategyScan, now: e.w.clock.Now().Add(-e.w.clock.Grain())}
	if l.session != nil {
		s.strategy = strategySession
	}
	for _, wt := range l.watches {
		s.ours[wt.want.Identity] = wt
		s.last = max(s.last, wt.want.Number)
	}
	// The scan releases the live messages in any case, and only at the end: earlier they would be
	// at the head again.
	defer func() {
		released, releaseErr := r.GiveBack(ctx, s.live...)
		e.w.metrics.Operation(operations.Release, released)
		err = errors.Join(err, releaseErr)
	}()
	s.settling.SetLimit(maxSettling)
	err = errors.Join(s.run(ctx), s.settling.Wait())
	for _, wt := range s.dead {
		e.expiredByHand(wt, s.strategy)
	}
	if s.cut && len(s.dead) > 0 {
		for _, wt := range l.watches {
			if s.ours[wt.want.Identity] == wt {
				wt.attempt.left = cutOff
			}
		}
	}
	if err != nil {
		return fmt.Errorf("monitor: scan %s: %w", e.name, err)
	}
	return nil
}

// nudgeTakes is how long it counts that a message was there before a nudge: over a line that was
// frozen, it may have been settled since.
const nudgeTakes = time.Second

// scanTakes is the same before a scan. In a session nobody else settles while that waits.
func (e *entity) scanTakes() time.Duration {
	if e.settings.sessions {
		return nudgeTakes
	}
	return scanWait
}

// scan is the state of one scan.
type scan struct {
	e        *entity
	r        *link.Receiver
	line     receiveScope
	ours     map[search.Identity]*watch // until they are found
	last     int64                      // the highest of those numbers
	live     []*link.ReceivedMessage    // received, to be released
	strategy string
	now      time.Time // by the broker's clock, and not ahead of it
	cut      bool      // it ended before the end of the queue, and before all of ours were found

	ahead   []int64 // waiting sequence numbers up to the last of ours, as far as peeked
	peeked  int64   // where the next peek begins
	reached bool    // the peeks have reached the end

	settling errgroup.Group
	mu       sync.Mutex
	dead     []*watch // dead-lettered
}

func (s *scan) run(ctx context.Context) error {
	end := time.Now().Add(scanTime)
	for batch := 1; len(s.ours) > 0 && len(s.live) < scanMost && time.Now().Before(end); batch = min(batch*scanGrow, scanBatch) {
		credit, err := s.credit(ctx, batch)
		if err != nil || credit == 0 {
			return err
		}
		if err := s.r.Grant(ctx, uint32(credit)); err != nil {
			return err
		}
		reading := s.keepNewDeadLetters(ctx)
		met, passed, err := s.batch(ctx, credit, end)
		if err = errors.Join(err, reading()); err != nil {
			return err
		}
		if passed || met < credit && time.Now().Before(end) {
			return nil // beyond the last of ours, or at the end of the available messages
		}
	}
	s.cut = len(s.ours) > 0
	return nil
}

// keepNewDeadLetters reads the dead letters that the credit has just made, as behind a nudge. The
// caller calls done before it goes on. In a session they need no proof, see findAgain, and other
// scans run beside this one.
func (s *scan) keepNewDeadLetters(ctx context.Context) (done func() error) {
	if s.line.session != nil {
		return func() error { return nil }
	}
	var reading errgroup.Group
	reading.Go(func() error { return s.e.keepNewDeadLetters(ctx) })
	return reading.Wait
}

// credit returns how many messages to request at most: as many as a peek shows up to the last of
// ours. A peek also shows locked messages, and for each of those a later one is delivered. So the
// first batch is one message: if that is behind the last of ours, all of ours are locked. Each
// complete batch shows that the connection does not stall, and the next one is larger: messages in
// transit during a stall stay locked.
//
// In a session no other receiver has locks, and in a partitioned entity numbers do not show the
// order.
func (s *scan) credit(ctx context.Context, most int) (int, error) {
	if s.line.session != nil || s.e.unordered() {
		return most, nil
	}
	for len(s.ahead) == 0 && !s.reached {
		// Only this goroutine uses the view: there is one scope.
		page, err := s.e.work.Peek(ctx, s.peeked, search.PageSize)
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
	return min(most, len(s.ahead)), nil
}

// pass records that messages up to a sequence number were received, or are locked.
func (s *scan) pass(number int64) {
	i, _ := slices.BinarySearch(s.ahead, number+1)
	s.ahead = s.ahead[i:]
	s.peeked = max(s.peeked, number+1)
}

// batch receives until the credit is used up, no more messages arrive, or the scan has passed all
// of ours. It drains the remaining credit.
func (s *scan) batch(ctx context.Context, credit int, end time.Time) (met int, passed bool, err error) {
	wait := scanWait
	for met < credit && time.Now().Before(end) {
		m, err := s.r.Receive(ctx, wait)
		if err != nil {
			return met, passed, err
		}
		if m == nil {
			break
		}
		wait = scanGap
		met++
		if s.meet(ctx, m) {
			passed = true
			break
		}
	}
	if met == credit {
		return met, passed, nil
	}
	if err := s.r.Drain(ctx); err != nil {
		return met, passed, err
	}
	for m := s.r.Prefetched(); m != nil; m = s.r.Prefetched() {
		met++
		s.meet(ctx, m)
	}
	return met, passed, nil
}

// meet dead-letters m if it is one of ours or overdue, and otherwise keeps it for release. It
// reports whether the scan has passed all of ours.
func (s *scan) meet(ctx context.Context, m *link.ReceivedMessage) (passed bool) {
	at := search.IdentityOf(&m.Message)
	s.e.w.metrics.Operation(operations.Scan, 1)
	s.pass(at.Number)
	wt := s.ours[at]
	if deadline, stated := s.overdue(m); wt == nil && stated && !s.e.w.clock.IsEarly(deadline, m.LockedUntil, s.e.settings.lock) {
		s.settling.Go(func() error { return s.deadLetter(ctx, nil, m, deadline) })
		return at.Number > s.last && !s.e.unordered()
	}
	if wt == nil {
		s.live = append(s.live, m)
		// The numbers of a partitioned entity are not in order of arrival.
		return at.Number > s.last && !s.e.unordered()
	}
	delete(s.ours, at)
	if s.e.w.clock.IsEarly(wt.judgement.Deadline, m.LockedUntil, s.e.settings.lock) {
		wt.see(foundEarly)
		s.live = append(s.live, m)
		return len(s.ours) == 0
	}
	s.settling.Go(func() error { return s.deadLetter(ctx, wt, m, wt.judgement.Deadline) })
	return len(s.ours) == 0
}

// overdue reports whether m, which is not one of ours, states a deadline that has passed: another
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

// deadLetter dead-letters m, the message of wt; nil: of no watch here.
func (s *scan) deadLetter(ctx context.Context, wt *watch, m *link.ReceivedMessage, deadline time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	err := s.r.DeadLetter(ctx, m, reasonDeadline, description(deadline))
	switch c := link.Condition(err); {
	case c == link.ConditionLockLost || c == link.ConditionSessionLost:
		return nil // the next check shows its outcome
	case err != nil:
		return fmt.Errorf("dead-letter: %w", err)
	}
	if wt == nil {
		s.e.w.metrics.Operation(operations.DeadLetter, 1)
		s.keep(m)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = append(s.dead, wt)
	return nil
}

// keep shows m, which was just dead-lettered for a companion that is not in this scan, to the check
// of that companion. A consumer may take the dead letter before.
func (s *scan) keep(m *link.ReceivedMessage) {
	letter := m.Message
	letter.DeadLetterReason = reasonDeadline
	s.e.kept.Add([]*link.Message{&letter})
}
