// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/scheduler/index"
)

const (
	// cancelDelay is how long a companion that has become needless waits for others, so that they
	// share a request. What is due sooner does not wait.
	cancelDelay = 5 * time.Second
	// cancelTick is how often those that wait are looked at.
	cancelTick = 500 * time.Millisecond
	// cancelBatch bounds the companions of one request, and of one peek.
	cancelBatch = 250
	// cancelBacklog bounds the companions that wait to be cancelled. The others become due.
	cancelBacklog = 16 << 10
	// cancelTime bounds a round.
	cancelTime = time.Minute
	// A round that failed is followed by a rest, which doubles from cancelRest up to cancelRestMost.
	// Where rights are missing that is all that is ever tried.
	cancelRest     = time.Second
	cancelRestMost = 10 * time.Minute
)

// Expect notes that messages with these references are about to be sent to entity. It MUST be
// called before they leave, for those of every send: only then is it known which settlement could
// mean which.
func (s *Scheduler) Expect(entity string, refs []Reference) {
	if s.cfg.Index != nil {
		s.cfg.Index.Put(entity, indexed(refs))
	}
}

// Confirm notes that the broker has accepted the messages, each once. Only those can be settled
// early; it must not be called for messages that may be in the queue twice, or that the broker
// stamps later.
func (s *Scheduler) Confirm(entity string, refs []Reference) {
	if s.cfg.Index == nil {
		return
	}
	if now := s.Now(); now.Measured {
		s.cfg.Index.Confirm(entity, indexed(refs), now.Time.Add(now.Uncertainty))
		s.wakeCancel()
	}
}

// Refuse notes that the broker has refused the messages. Their companions are checked as any other: a
// send that is repeated may be refused after it was accepted. If nothing is found, that is no deadline
// that was met.
func (s *Scheduler) Refuse(entity string, refs []Reference) {
	if s.cfg.Index != nil {
		s.cfg.Index.Refuse(entity, indexed(refs))
	}
}

// Refused reports whether the message that r was sent with is known to be refused.
func (s *Scheduler) Refused(entity string, r *Reference) bool {
	if s.cfg.Index == nil {
		return false
	}
	indexed := r.indexed()
	return s.cfg.Index.Refused(entity, &indexed)
}

// Expects reports whether a message of entity may have been sent from here, or from another process
// that wants to know, and the key by which it is known then. Where it reports false, nobody waits
// for its settlement.
func (s *Scheduler) Expects(entity string, messageID, sessionID []byte) (index.Key, bool) {
	if s.cfg.Index == nil {
		return index.Key{}, false
	}
	return s.cfg.Index.Expects(entity, messageID, sessionID)
}

// Settle notes that the broker has confirmed that a message is off its queue. A companion that
// waits for no other is cancelled, if that is worth it; otherwise it is known to be needless when
// it becomes due here.
func (s *Scheduler) Settle(d index.Delivered) {
	if s.cfg.Index != nil && s.cfg.Index.Take(d) {
		s.wakeCancel()
	}
}

// RunSharing cancels companions of messages that were settled through other processes, and announces
// to these what is settled here, until ctx ends. It takes an [index.Shared].
func (s *Scheduler) RunSharing(ctx context.Context) error {
	if x, ok := s.cfg.Index.(*index.Shared); ok {
		x.Run(ctx, s.InSlots, s.wakeCancel)
	}
	<-ctx.Done()
	return nil
}

// Settled reports whether the message that r was sent with is known to be settled.
func (s *Scheduler) Settled(entity string, r *Reference) bool {
	if s.cfg.Index == nil {
		return false
	}
	indexed := r.indexed()
	return s.cfg.Index.Taken(entity, &indexed)
}

// indexed is r as the index knows it.
func (r *Reference) indexed() index.Reference {
	return index.Reference{
		MessageID: r.MessageID, SessionID: r.SessionID, From: r.From, Until: r.Until, Deadline: r.Deadline, Within: r.Within,
	}
}

func indexed(refs []Reference) []index.Reference {
	all := make([]index.Reference, len(refs))
	for i := range refs {
		all[i] = refs[i].indexed()
	}
	return all
}

func (s *Scheduler) wakeCancel() {
	select {
	case s.needless <- struct{}{}:
	default:
	}
}

// carried notes that the companions of groups are on the monitor queue.
func (s *Scheduler) carried(groups []*group) {
	if s.cfg.Index == nil {
		return
	}
	for _, g := range groups {
		if g.composed {
			s.cfg.Index.Carried(g.id, g.c.Entity, g.c.Due, indexed(g.c.References))
		}
	}
	s.wakeCancel()
}

// RunCancel cancels companions that have become needless until ctx ends. What it does not get to
// becomes due for nothing. A failure ends a round; Config.Cancelled gets it.
func (s *Scheduler) RunCancel(ctx context.Context) error {
	if s.cfg.Index == nil {
		<-ctx.Done()
		return nil
	}
	c := canceller{s: s}
	rest := cancelRest
	for c.await(ctx) {
		n, err := c.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s.cfg.Cancelled != nil {
			s.cfg.Cancelled(n, err)
		}
		if err == nil {
			rest = cancelRest
			continue
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
		}
		rest = min(2*rest, cancelRestMost)
	}
	return nil
}

// A canceller is the state of RunCancel.
type canceller struct {
	s       *Scheduler
	waiting []index.Needless
	since   time.Time // when the first of them came
}

// await waits until there is something that is worth a request. It returns false when ctx ends.
func (c *canceller) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		before := len(c.waiting)
		c.waiting = c.s.cfg.Index.Needless(c.waiting)
		if before == 0 {
			c.since = time.Now()
		}
		now := c.s.Now().Time
		c.waiting = slices.DeleteFunc(c.waiting, func(n index.Needless) bool { return n.Due.Before(now.Add(index.CancelLead)) })
		c.waiting = c.waiting[:min(len(c.waiting), cancelBacklog)]
		urgent := func(n index.Needless) bool { return n.Due.Before(now.Add(index.CancelLead + 2*cancelTick)) }
		var tick <-chan time.Time
		switch {
		case len(c.waiting) == 0:
		case len(c.waiting) >= cancelBatch, time.Since(c.since) >= cancelDelay, slices.ContainsFunc(c.waiting, urgent):
			return true
		default:
			tick = time.After(cancelTick)
		}
		select {
		case <-c.s.needless:
			if tick != nil {
				select { // not for each that comes
				case <-tick:
				case <-ctx.Done():
				}
			}
		case <-tick:
		case <-ctx.Done():
		}
	}
	return false
}

// round cancels what waits, as far as it is found on the monitor queues. A queue that fails keeps
// nothing of the others from being cancelled.
func (c *canceller) round(ctx context.Context) (n int, err error) {
	if c.s.cfg.Store != nil {
		ctx, cancel := context.WithTimeout(ctx, cancelTime)
		defer cancel()
		return c.withdraw(ctx)
	}
	byLane := map[*lane][]index.Needless{}
	for _, w := range c.waiting {
		l := c.s.laneOf(w.Entity)
		byLane[l] = append(byLane[l], w)
	}
	c.waiting = nil
	for _, l := range c.s.lanes {
		if len(byLane[l]) > 0 {
			cancelled, laneErr := c.roundOn(ctx, l, byLane[l])
			n, err = n+cancelled, errors.Join(err, laneErr)
		}
	}
	return n, err
}

// roundOn is round for one monitor queue.
func (c *canceller) roundOn(ctx context.Context, l *lane, waiting []index.Needless) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, cancelTime)
	defer cancel()
	late, err := c.learn(ctx, l, waiting)
	if err != nil {
		c.waiting = append(c.waiting, waiting...)
		return 0, err
	}
	c.waiting = append(c.waiting, late...)
	var found []index.Needless
	var numbers []int64
	for _, w := range waiting {
		if number := c.s.cfg.Index.NumberOf(w.ID); number != 0 {
			found, numbers = append(found, w), append(numbers, number)
		}
	}
	for part := range slices.Chunk(numbers, cancelBatch) {
		c.s.cfg.Operations.Add(operations.Cancel, 1)
		if err := c.s.cancelOn(ctx, l, part); err != nil {
			// If one of them is gone, the error does not say which, and they become due.
			if link.Condition(err) != link.ConditionMessageNotFound {
				c.waiting = append(c.waiting, found[n:]...)
			}
			return n, fmt.Errorf("scheduler: cancel companions on %s: %w", l.queue, err)
		}
		for _, w := range found[n : n+len(part)] {
			c.s.cfg.Index.Forget(w.ID)
			c.s.cfg.Deadlines.Add(w.Entity, operations.Met, w.Messages)
		}
		n += len(part)
	}
	return n, nil
}

// cancelOn takes messages off a monitor queue that wait there for their activation. After the
// refusal that says that they are being cancelled, the SDK would open its connection again.
func (s *Scheduler) cancelOn(ctx context.Context, l *lane, numbers []int64) error {
	node, err := s.cfg.Links.Peeker(ctx, l.queue)
	if err != nil {
		return err
	}
	defer node.Close(context.WithoutCancel(ctx))
	return node.CancelScheduled(ctx, numbers)
}

// errNotShown says that a peek at the monitor queue does not show what was written there.
var errNotShown = errors.New("none of the companions that wait is shown by a peek")

// learn reads on in the monitor queue until the numbers of all that wait are known. It notes those
// of others on the way, so that nothing is read twice. What it has not got to is late: a peek for
// each that waits is as much as cancelling can save.
func (c *canceller) learn(ctx context.Context, l *lane, waiting []index.Needless) (late []index.Needless, err error) {
	unknown := map[index.ID]struct{}{}
	oldest := time.Now()
	for _, w := range waiting {
		if c.s.cfg.Index.NumberOf(w.ID) == 0 {
			unknown[w.ID] = struct{}{}
			if w.Written.Before(oldest) {
				oldest = w.Written
			}
		}
	}
	if len(unknown) == 0 {
		return nil, nil
	}
	l.position = l.probes.from(l.position, oldest.Add(-c.s.cfg.WriteTimeout))
	peeker, err := c.s.cfg.Links.Peeker(ctx, l.queue)
	if err != nil {
		return nil, fmt.Errorf("scheduler: search %s for companions: %w", l.queue, err)
	}
	defer peeker.Close(context.WithoutCancel(ctx))
	sought, ours := len(unknown), 0
	for range sought {
		page, err := peeker.Peek(ctx, l.position, cancelBatch)
		c.s.cfg.Operations.Add(operations.Peek, 1)
		if err != nil {
			return nil, fmt.Errorf("scheduler: search %s for companions: %w", l.queue, err)
		}
		if len(page) == 0 {
			if ours == 0 { // perhaps the queue was made again: its numbers begin again
				l.position = 0
				l.probes.forget()
				return nil, fmt.Errorf("scheduler: search %s for companions: %w", l.queue, errNotShown)
			}
			return nil, nil // what was not met is gone
		}
		for _, m := range page {
			l.position = max(l.position, m.SequenceNumber+1)
			if id, ok := index.ParseID(m.MessageID); ok && m.State == link.Scheduled && c.s.cfg.Index.Number(id, m.SequenceNumber) {
				ours++
				delete(unknown, id)
			}
		}
		if len(unknown) == 0 {
			return nil, nil
		}
	}
	return slices.DeleteFunc(slices.Clone(waiting), func(w index.Needless) bool {
		_, ok := unknown[w.ID]
		return !ok
	}), nil
}

// probes are the numbers that the monitor queue had reached when the clock was measured: where to
// begin to read it.
type probes struct {
	mu   sync.Mutex
	seen []probe // oldest first
}

type probe struct {
	number int64
	at     time.Time // by our clock: when it was there already
}

// maxProbes bounds those that are kept: of some forty minutes.
const maxProbes = 8

func (p *probes) add(number int64, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) == maxProbes {
		p.seen = append(p.seen[:0], p.seen[1:]...)
	}
	p.seen = append(p.seen, probe{number, at})
}

// forget drops all: they may be those of a queue that is gone.
func (p *probes) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = nil
}

// from is where to read on, having read up to position, for what was written after the instant t.
func (p *probes) from(position int64, t time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.seen) - 1; i >= 0; i-- {
		if p.seen[i].at.Before(t) {
			return max(position, p.seen[i].number)
		}
	}
	if position == 0 && len(p.seen) > 0 {
		return p.seen[0].number
	}
	return position
}
