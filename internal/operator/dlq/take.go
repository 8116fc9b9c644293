// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"overdue/internal/servicebus/link"

	"golang.org/x/sync/errgroup"
)

const (
	// chunk is how many messages are received and settled together.
	chunk = 100
	// maxHeld bounds the messages that were not chosen. They are kept until those behind them have
	// been received, without their bodies.
	maxHeld = 50_000
	// firstTimeout is how long nothing has to come before the queue counts as at its end.
	// nextTimeout is the same once a message has come.
	firstTimeout  = 3 * time.Second
	nextTimeout   = 200 * time.Millisecond
	settleTimeout = 30 * time.Second
	settleAtOnce  = 32
)

// ErrBuried says that the chosen messages stand behind more others than one process keeps.
var ErrBuried = errors.New("the dead letters stand behind too many others that do not match")

// taken is a dead letter under lock.
type taken struct {
	number   int64
	message  *link.ReceivedMessage
	receiver *link.Receiver
	settled  bool // taken off, or its lock is lost
}

// complete takes ts off their queue, and returns the numbers of those that it took.
func complete(ctx context.Context, ts []*taken) (gone []int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(settleAtOnce)
	failed := make([]error, len(ts))
	for i, t := range ts {
		g.Go(func() error {
			failed[i] = t.receiver.Complete(ctx, t.message)
			return nil
		})
	}
	_ = g.Wait() // see failed
	for i, t := range ts {
		switch {
		case failed[i] == nil:
			t.settled = true
			gone = append(gone, t.number)
		case link.Condition(failed[i]) == link.ConditionLockLost:
			t.settled = true // its lock lapsed, and it may be there still: Sort finds out
		default:
			err = errors.Join(err, fmt.Errorf("complete dead letter %d: %w", t.number, failed[i]))
		}
	}
	return gone, err
}

// atOnce is how many dead letters are taken at once at that rate. The last of them still has its
// lock when its turn comes.
func atOnce(rate float64, hold time.Duration) int {
	if rate <= 0 {
		return chunk
	}
	return max(1, min(chunk, int(rate*hold.Seconds()/2)))
}

// take receives the chosen dead letters of a place and passes them to do, at most n at a time. It
// deletes them from chosen as they come. It releases all others, and when do fails also those that
// do has not completed, so that the next run need not wait for locks to lapse. hold is how long a
// message may be kept before its lock is at risk.
//
// Those that are left in chosen at the end are gone, or locked by another client; see [Sort]. With
// ErrBuried they may be there, too far behind.
func take(ctx context.Context, links *link.Namespace, place Place, chosen map[int64]bool, n int, hold time.Duration, do func(context.Context, []*taken) error) (err error) {
	if len(chosen) == 0 {
		return nil
	}
	r, err := links.BareReceiver(ctx, place.Path(), nil)
	if err != nil {
		return err
	}
	defer r.Close(ctx)
	var held []*link.ReceivedMessage
	giveBack := func() error {
		back := held
		held = nil
		_, err := r.GiveBack(ctx, back...)
		return err
	}
	// After another error that of giving back adds nothing: locks lapse.
	defer func() { err = cmp.Or(err, giveBack()) }()
	var since time.Time // the first of held came
	progress := true    // since all was given back
	for len(chosen) > 0 {
		ms, err := receive(ctx, r, n)
		if err != nil {
			held = append(held, ms...)
			return fmt.Errorf("receive from %s: %w", place.Path(), err)
		}
		if len(ms) == 0 {
			return ctx.Err()
		}
		ours, others := pick(ms, chosen, r)
		if len(held) == 0 {
			since = time.Now()
		}
		held = append(held, others...)
		if len(ours) > 0 {
			progress = true
			if err := do(ctx, ours); err != nil {
				held = append(held, unsettled(ours)...)
				return err
			}
		}
		isOld := len(held) > 0 && time.Since(since) > hold
		if len(held) >= maxHeld || isOld {
			if !progress {
				return ErrBuried
			}
			progress = false
			err = giveBack()
		}
		if err != nil {
			return err
		}
		if err := r.Claim(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pick separates the chosen messages, which it deletes from chosen, from the others.
func pick(ms []*link.ReceivedMessage, chosen map[int64]bool, r *link.Receiver) (ours []*taken, others []*link.ReceivedMessage) {
	for _, m := range ms {
		number := m.SequenceNumber
		if !chosen[number] {
			others = append(others, m)
			continue
		}
		delete(chosen, number)
		ours = append(ours, &taken{number: number, message: m, receiver: r})
	}
	return ours, others
}

// unsettled returns the messages that are not settled.
func unsettled(all []*taken) (left []*link.ReceivedMessage) {
	for _, t := range all {
		if !t.settled {
			left = append(left, t.message)
		}
	}
	return left
}

// receive returns up to n messages, and none at the end of the queue.
func receive(ctx context.Context, r *link.Receiver, n int) (ms []*link.ReceivedMessage, err error) {
	if err := r.Grant(ctx, uint32(n)); err != nil {
		return nil, err
	}
	for wait := firstTimeout; len(ms) < n; wait = nextTimeout {
		m, err := r.Receive(ctx, wait)
		if err != nil {
			return ms, err
		}
		if m == nil {
			break
		}
		ms = append(ms, m)
	}
	if err := r.Drain(ctx); err != nil {
		return ms, err
	}
	for m := r.Prefetched(); m != nil; m = r.Prefetched() {
		ms = append(ms, m)
	}
	return ms, nil
}

// Sort returns which of left are still there, so another client has locked them, and which are
// gone, each in the order of their numbers.
func Sort(ctx context.Context, links *link.Namespace, place Place, left map[int64]bool) (locked, gone []int64, err error) {
	locked, gone = []int64{}, []int64{}
	numbers := slices.Sorted(maps.Keys(left))
	if len(numbers) == 0 {
		return locked, gone, nil
	}
	last := numbers[len(numbers)-1]
	there := map[int64]bool{}
	err = Walk(ctx, links, place, numbers[0], func(l *Letter) bool {
		if left[l.Number] {
			there[l.Number] = true
		}
		return l.Number < last
	})
	if err != nil {
		return locked, gone, err
	}
	for _, n := range numbers {
		if there[n] {
			locked = append(locked, n)
		} else {
			gone = append(gone, n)
		}
	}
	return locked, gone, nil
}

// Purge takes the chosen dead letters off their queue for good, and deletes them from chosen. It
// calls purged, unless that is nil, with how many went at a time. rate bounds them, per second; 0 =
// as fast as it goes. It returns those that are left, as [Sort] does.
func Purge(ctx context.Context, links *link.Namespace, place Place, chosen map[int64]bool, hold time.Duration, rate float64, purged func(n int)) (locked, gone []int64, err error) {
	pace := newPace(rate)
	err = take(ctx, links, place, chosen, atOnce(rate, hold), hold, func(ctx context.Context, ts []*taken) error {
		if err := pace.wait(ctx, len(ts)); err != nil {
			return err
		}
		numbers, err := complete(ctx, ts)
		if purged != nil {
			purged(len(numbers))
		}
		return err
	})
	if err != nil {
		return []int64{}, []int64{}, err
	}
	return Sort(ctx, links, place, chosen)
}

// pace bounds how many messages go by in a second.
type pace struct {
	each time.Duration
	next time.Time // when the next one may go
}

func newPace(rate float64) *pace {
	if rate <= 0 {
		return &pace{}
	}
	return &pace{each: time.Duration(float64(time.Second) / rate)}
}

// wait returns when n more may go.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.each == 0 {
		return ctx.Err()
	}
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	until := time.NewTimer(p.next.Sub(now))
	defer until.Stop()
	p.next = p.next.Add(time.Duration(n) * p.each)
	select {
	case <-until.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
