// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"
	"time"
)

// driftPerSecond is what two undisciplined clocks part in a second at most, with a margin.
const driftPerSecond = 200 * time.Microsecond

// Instant is a reading of the broker's clock.
type Instant struct {
	Time        time.Time     // UTC
	Measured    bool          // false: Time is our own clock, which may be wrong by any amount
	Uncertainty time.Duration // of Time, either way, when Measured
	Grain       time.Duration // of the stamps of the broker, when Measured: they are rounded down to it
}

// StampedSince is the earliest stamp of what is sent now, when Measured.
func (i Instant) StampedSince() time.Time { return i.Cut(i.Time.Add(-i.Uncertainty)) }

// Cut is the stamp that the broker makes at t, when Measured. Stamps have the resolution of an AMQP
// timestamp, or are whole seconds.
func (i Instant) Cut(t time.Time) time.Time { return t.Truncate(max(i.Grain, time.Millisecond)) }

// StampedBy is by when the broker stamps what is sent now, in all likelihood. A send that takes
// longer needs another companion before it is acknowledged.
func (i Instant) StampedBy() time.Time { return i.Time.Add(i.Uncertainty + slotWindow) }

// clock is the broker's clock as seen from here: a stamp of the broker, carried on by
// our monotonic clock. That stands still while this machine is suspended. So where our wall clock
// has gone on by a second more, nothing is known until the next measurement.
type clock struct {
	mu       sync.Mutex
	measured bool
	at       time.Time     // our clock, with its monotonic reading, at the measurement
	wall     time.Time     // the same without it
	broker   time.Time     // the broker's clock at that instant
	err      time.Duration // half of what the measurement left open
	grain    time.Duration // of the stamps
	asked    time.Time     // our clock, when another measurement was asked for
}

// now reads the clock. suspended says that it has to be measured again before it can be read.
func (c *clock) now() (now Instant, suspended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ours := time.Now()
	suspended = c.measured && c.suspendedLocked(ours)
	if !c.measured || suspended {
		return Instant{Time: ours.UTC()}, suspended
	}
	age := ours.Sub(c.at)
	return Instant{
		Time:        c.broker.Add(age).UTC(),
		Measured:    true,
		Uncertainty: c.err + drift(age),
		Grain:       c.grain,
	}, false
}

func (c *clock) suspendedLocked(ours time.Time) bool {
	return ours.Round(0).Sub(c.wall)-ours.Sub(c.at) > time.Second
}

// set takes the stamp that the broker made between the instants sent and received of our clock, and
// rounded down to the grain. It does not if the known offset is still sharper and agrees with it.
func (c *clock) set(stamp time.Time, grain time.Duration, sent, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := received.Sub(sent) + grain
	if age := received.Sub(c.at); c.measured && c.grain == grain && !c.suspendedLocked(received) {
		err, known := c.err+drift(age), c.broker.Add(age)
		agrees := !known.Add(err).Before(stamp) && !known.Add(-err).After(stamp.Add(open))
		if agrees && err < open/2 {
			return
		}
	}
	c.measured, c.at, c.wall = true, received, received.Round(0)
	c.broker, c.err, c.grain = stamp.Add(open/2), open/2, grain
}

// mayAsk reports whether another measurement may be asked for, in as many seconds no more than once
// as take a third of what slots allow, and notes that it was. Over a line that is too long for
// slots it is of no use.
func (c *clock) mayAsk() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.measured || c.err >= slotClock || drift(now.Sub(c.asked)) < slotClock/3 {
		return false
	}
	c.asked = now
	return true
}

func drift(age time.Duration) time.Duration {
	return time.Duration(age.Seconds() * float64(driftPerSecond))
}

// Now reads the broker's clock, as far as it has been measured.
func (s *Scheduler) Now() Instant {
	now, suspended := s.clock.now()
	if suspended {
		s.wantMeasurement()
	}
	return now
}

// Measured is closed when the broker's clock has been measured.
func (s *Scheduler) Measured() <-chan struct{} { return s.measured }

// Blurred has a value when the clock had better be measured before its turn. Slots pay, and soon it
// is not known well enough for them, or this machine was suspended.
func (s *Scheduler) Blurred() <-chan struct{} { return s.blurred }

// wantMeasurement gives Blurred a value.
func (s *Scheduler) wantMeasurement() {
	select {
	case s.blurred <- struct{}{}:
	default:
	}
}
