// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
)

const (
	// probeDelay is how far ahead the probe is scheduled: so far that no clock is wrong
	// by as much, so near that a probe which could not be cancelled goes away.
	probeDelay = 24 * time.Hour
	// probeGrace is how long a measurement may go on when its context has ended. One that stopped
	// at once would leave its probes on the monitor queue for a day.
	probeGrace = 2 * time.Second
	// probeTTL lets a probe that was left behind expire right after its activation.
	probeTTL = time.Second
	// probeSubject is the subject of probes.
	probeSubject = "clock-probe"
	// Drift is what two undisciplined clocks part in a second at most, with a margin.
	driftPerSecond = 200 * time.Microsecond
	// Stamps have the resolution of an AMQP timestamp. Should the broker cut them to whole seconds,
	// two measurements show it, which are grainPause apart.
	stampGrain  = time.Millisecond
	coarseGrain = time.Second
	grainPause  = 7 * time.Millisecond
)

// Instant is a reading of the broker's clock.
type Instant struct {
	Time        time.Time     // UTC
	Measured    bool          // false: Time is our own clock, which may be wrong by any amount
	Uncertainty time.Duration // of Time, either way, when Measured
	Grain       time.Duration // of the stamps of the broker, when Measured: they are rounded down to it
}

// StampedSince is the earliest stamp of what is sent now, when Measured.
func (i Instant) StampedSince() time.Time { return i.Cut(i.Time.Add(-i.Uncertainty)) }

// Cut is the stamp that the broker makes at t, when Measured.
func (i Instant) Cut(t time.Time) time.Time { return t.Truncate(max(i.Grain, stampGrain)) }

// StampedBy is by when the broker stamps what is sent now, in all likelihood. A send that takes
// longer needs another companion before it is acknowledged.
func (i Instant) StampedBy() time.Time { return i.Time.Add(i.Uncertainty + slotWindow) }

// clock is the broker's clock as seen from here: a stamp of the broker, carried on by
// our monotonic clock. That stands still while this machine is suspended. So where our wall clock
// has gone on by more, nothing is known until the next measurement.
type clock struct {
	mu       sync.Mutex
	measured bool
	at       time.Time     // our clock, with its monotonic reading, at the measurement
	wall     time.Time     // the same without it
	broker   time.Time     // the broker's clock at that instant
	err      time.Duration // half of what the measurement left open
	grain    time.Duration // of the stamps
	whole    time.Time     // our clock, when the first stamp came and had a whole second
	asked    time.Time     // our clock, when a measurement was asked for last
}

func (c *clock) now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.measured || c.suspendedLocked(now) {
		return Instant{Time: now.UTC()}
	}
	age := now.Sub(c.at)
	return Instant{Time: c.broker.Add(age).UTC(), Measured: true, Uncertainty: c.err + drift(age), Grain: c.grain}
}

// suspendedMost is by how much our two clocks may part while this machine runs.
const suspendedMost = time.Second

func (c *clock) suspendedLocked(now time.Time) bool {
	return now.Round(0).Sub(c.wall)-now.Sub(c.at) > suspendedMost
}

// suspended reports whether this machine was suspended after the measurement.
func (c *clock) suspended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.measured && c.suspendedLocked(time.Now())
}

// set takes the stamp that the broker made between the instants sent and received of
// our clock, unless what is known is still sharper and agrees with it.
func (c *clock) set(stamp, sent, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !stamp.Truncate(coarseGrain).Equal(stamp):
		c.grain = stampGrain
	case c.grain == 0 && c.whole.IsZero():
		c.whole = received
	case c.grain == 0 && received.Sub(c.whole)%coarseGrain >= grainPause: // not chance
		c.grain, c.measured = coarseGrain, false
	}
	open := received.Sub(sent) + max(c.grain, stampGrain)
	if age := received.Sub(c.at); c.measured && !c.suspendedLocked(received) {
		err, known := c.err+drift(age), c.broker.Add(age)
		agrees := !known.Add(err).Before(stamp) && !known.Add(-err).After(stamp.Add(open))
		if agrees && err < open/2 {
			return
		}
	}
	// The stamp was made somewhere between the two instants and rounded down.
	c.measured, c.at, c.wall, c.err = true, received, received.Round(0), open/2
	c.broker = stamp.Add(open / 2)
}

// mayBeCoarse reports whether one more measurement shows whether stamps are whole seconds.
func (c *clock) mayBeCoarse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grain == 0 && c.measured
}

const (
	// askSoonest is how often a measurement is asked for at most, and askAgain the same where the
	// last one was too coarse for slots, as the next may be.
	askSoonest = 5 * time.Second
	askAgain   = time.Minute
)

// fades reports whether half of what a measurement was sharper than slots need is gone. Then it is
// time for the next one. It says so once in a while: a measurement may have begun.
func (c *clock) fades() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pause := askAgain
	if left := slotClock - c.err; left > 0 {
		pause = max(left/2/driftPerSecond*time.Second, askSoonest)
	}
	if !c.measured || time.Since(c.at) < pause || time.Since(c.asked) < pause {
		return false
	}
	c.asked = time.Now()
	return true
}

func drift(age time.Duration) time.Duration {
	return time.Duration(age.Seconds() * float64(driftPerSecond))
}

// Now reads the broker's clock, as far as it has been measured.
func (s *Scheduler) Now() Instant {
	now := s.clock.now()
	if !now.Measured && s.clock.suspended() {
		s.wantMeasurement()
	}
	return now
}

// Measured is closed when the broker's clock has been measured.
func (s *Scheduler) Measured() <-chan struct{} { return s.measured }

// Blurred has a value when the clock had better be measured before its turn: slots pay, and soon it
// is not known well enough for them; or companions go to a monitor queue that no measurement was
// made on.
func (s *Scheduler) Blurred() <-chan struct{} { return s.blurred }

// wantMeasurement gives Blurred a value.
func (s *Scheduler) wantMeasurement() {
	select {
	case s.blurred <- struct{}{}:
	default:
	}
}

func (s *Scheduler) setClock(stamp, sent, received time.Time) {
	s.clock.set(stamp, sent, received)
	s.onceMeasured.Do(func() { close(s.measured) })
}

// MeasureClock measures the broker's clock: it schedules a message far ahead on the monitor queue,
// peeks at the enqueued-time that the broker stamped on it, and cancels it. It also opens the
// connection over which companions are written. It needs the Listen right. Until it has succeeded
// once, Now is our own clock. Of several monitor queues it asks the first and all that companions
// were written to: a queue's numbers tell where to begin to read it.
//
// That a message which waits for its activation shows its send time as enqueued-time was seen on a
// live namespace, and is not documented. Should a broker show something else, the stamp lies
// outside of what is plausible and the clock stays unmeasured.
func (s *Scheduler) MeasureClock(ctx context.Context) error {
	err := s.measureAll(ctx)
	if err == nil && s.clock.mayBeCoarse() {
		time.Sleep(grainPause)
		err = s.measureAll(ctx)
	}
	return err
}

func (s *Scheduler) measureAll(ctx context.Context) error {
	if s.cfg.Store != nil {
		return s.measurePlain(ctx)
	}
	var errs []error
	for i, l := range s.lanes {
		s.mu.Lock()
		used := l.used
		s.mu.Unlock()
		if i == 0 || used {
			errs = append(errs, s.measure(ctx, l))
		}
	}
	return errors.Join(errs...)
}

// measure measures the clock on one monitor queue.
func (s *Scheduler) measure(ctx context.Context, l *lane) error {
	// The first companion should not wait for its connection.
	if err := l.companions.Open(ctx); err != nil {
		return fmt.Errorf("scheduler: reach monitor queue %s: %w", l.queue, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("scheduler: measure the clock of %s: %w", l.queue, err)
	}
	ctx, end := endLater(ctx, probeGrace)
	defer end()
	probe := newProbe(probeTTL)
	due := s.Now().Time.Add(probeDelay)
	var numbers []int64
	var sent, received time.Time
	for range 2 { // the first may have to open the links, which would blur its measurement
		err := l.requests.Do(ctx, func(ctx context.Context, sender *azservicebus.Sender) error {
			sent = time.Now()
			scheduled, err := sender.ScheduleMessages(ctx, []*azservicebus.Message{probe}, due, nil)
			received = time.Now()
			numbers = append(numbers, scheduled...)
			return err
		})
		if err != nil {
			err = fmt.Errorf("scheduler: schedule a clock probe on %s: %w", l.queue, err)
			if len(numbers) > 0 {
				err = errors.Join(err, s.cancelOn(ctx, l, numbers))
			}
			return err
		}
	}
	last := numbers[len(numbers)-1]
	s.cfg.Operations.Add(operations.Probe, 4)
	peeked, err := s.peekOne(ctx, l, last)
	cancelErr := s.cancelOn(ctx, l, numbers)
	if err != nil {
		return fmt.Errorf("scheduler: peek at the clock probe on %s: %w", l.queue, err)
	}
	if cancelErr != nil {
		return fmt.Errorf("scheduler: cancel the clock probe on %s: %w", l.queue, cancelErr)
	}
	if peeked == nil || peeked.SequenceNumber != last || peeked.EnqueuedTime.IsZero() {
		return errors.New("scheduler: the broker shows no enqueued-time on a scheduled message; its clock stays unmeasured")
	}
	stamp := peeked.EnqueuedTime
	if ahead := due.Sub(stamp); ahead < time.Hour {
		return errors.New("scheduler: the broker stamps a scheduled message with its activation time; its clock stays unmeasured")
	}
	s.setClock(stamp, sent, received)
	l.probes.add(last, received)
	return nil
}

// peekOne returns the first message of a monitor queue from a number on, nil if there is none. What
// others have put there may be such that a receiver of the SDK panics.
func (s *Scheduler) peekOne(ctx context.Context, l *lane, number int64) (*link.Message, error) {
	p, err := s.cfg.Links.Peeker(ctx, l.queue)
	if err != nil {
		return nil, err
	}
	defer p.Close(ctx)
	ms, err := p.Peek(ctx, number, 1)
	if err != nil || len(ms) == 0 {
		return nil, err
	}
	return ms[0], nil
}

// newProbe returns a message that measures the clock. A monitor that receives it finds a version
// that it cannot read.
func newProbe(ttl time.Duration) *azservicebus.Message {
	return &azservicebus.Message{
		Body:        []byte(`{"version":0}`),
		Subject:     to.Ptr(probeSubject),
		ContentType: to.Ptr(contentType),
		TimeToLive:  &ttl,
	}
}

// endLater returns a context that ends some time after ctx.
func endLater(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			cancel()
		case <-later.Done():
		}
	})
	return later, func() {
		stop()
		cancel()
	}
}
