// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"overdue/scheduler"
)

// A message is what the send path has to know of a message, whichever door it came
// through. The door keeps the rest.
type message struct {
	ID           string // MUST NOT be empty when the entity is monitored
	SessionID    string // "" = none
	PartitionKey string // "" = none

	TTL                  time.Duration // of its header, whole milliseconds; 0 = none
	ScheduledEnqueueTime time.Time     // whole milliseconds; zero = at once

	// Property is the application property of that name, nil when there is none.
	Property func(name string) any

	// Stamp is set by send: the TTL that the door has to put on the message. 0 leaves it
	// as it is.
	Stamp time.Duration
}

// send brings messages to an entity, all of them or none, and promises their deadlines.
// Both doors end here. transmit carries the messages to the broker with the TTLs that
// are stamped on them by then, and returns when they are accepted.
//
// When send returns nil, the messages and the companions of those that have a deadline
// are accepted. When it returns an error, the messages may be in the queue nevertheless:
// an acknowledgement was lost, or the companion failed beside a work message that did
// not. Every such error is one to retry, so a send is delivered at least once.
func (p *Proxy) send(ctx context.Context, door, entity string, ms []*message, transmit func(context.Context) error) (err error) {
	leave, err := p.enter(ctx)
	if err != nil {
		p.metrics.sent(door, entity, len(ms), 0, err)
		return err
	}
	defer leave()
	// From here on the send runs to its end whether or not the app still waits: a caller
	// that hangs up between the work message and its companion must not part them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.SendTimeout)
	defer cancel()

	var promises []promise
	defer func() { p.metrics.sent(door, entity, len(ms), len(promises), err) }()

	if settings := p.cfg.Settings(entity); settings.Monitored {
		// The clock is read before anything leaves, so that the broker's stamp cannot be earlier.
		promises, err = promiseAll(ms, settings, p.cfg.Scheduler.Now())
		if err != nil {
			return err
		}
	}
	if len(promises) == 0 {
		return transmit(ctx)
	}
	if err := p.transmitPromised(ctx, entity, promises, transmit); err != nil {
		return err
	}
	return p.promiseAgain(ctx, entity, promises)
}

// transmitPromised writes the work messages and their companions. Both are in flight
// together, which costs the send no more than the slower of the two.
func (p *Proxy) transmitPromised(ctx context.Context, entity string, promises []promise, transmit func(context.Context) error) error {
	refs := make([]scheduler.Reference, len(promises))
	for i := range promises {
		refs[i] = promises[i].ref
	}
	if p.companionFirst.Load() {
		if err := p.schedule(ctx, entity, refs); err != nil {
			return err
		}
		return transmit(ctx)
	}
	companionCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	companion := make(chan error, 1)
	go func() { companion <- p.schedule(companionCtx, entity, refs) }()

	if err := transmit(ctx); err != nil {
		// The companion may still be written; it costs one needless look. The scheduler must
		// not keep the app waiting for it.
		giveUp()
		<-companion
		return err
	}
	return <-companion
}

// schedule writes the companions and remembers how it went.
func (p *Proxy) schedule(ctx context.Context, entity string, refs []scheduler.Reference) error {
	err := p.cfg.Scheduler.Schedule(ctx, scheduler.Companion{Entity: entity, References: refs})
	if err == nil {
		p.companionFirst.Store(false)
		return nil
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // then it was the work message that failed
		p.companionFirst.Store(true)
	}
	return fmt.Errorf("%w: %w", errCompanion, err)
}

// promiseAgain looks at the clock once more now that the messages are accepted. The
// companions name the window in which the broker has stamped the messages. A send that
// was retried may have been stamped later: those messages get a second companion, with a
// window up to now, before the app is told.
func (p *Proxy) promiseAgain(ctx context.Context, entity string, promises []promise) error {
	now := p.cfg.Scheduler.Now()
	var late []scheduler.Reference
	for i := range promises {
		if ref, ok := promises[i].widened(now); ok {
			late = append(late, ref)
		}
	}
	if len(late) == 0 {
		return nil
	}
	return p.schedule(ctx, entity, late)
}

// promiseAll works out the promise of every message that has a deadline.
func promiseAll(ms []*message, settings Settings, now scheduler.Instant) ([]promise, error) {
	var promises []promise
	for i, m := range ms {
		pr, ok, err := promiseOf(m, settings, now)
		if err != nil {
			return nil, ofBatch(err, i, len(ms))
		}
		if ok {
			promises = append(promises, pr)
		}
	}
	return promises, nil
}
