// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
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

// Cut is the stamp that the broker makes at t, when Measured. Stamps have the resolution of an AMQP
// timestamp, or are whole seconds.
func (i Instant) Cut(t time.Time) time.Time { return t.Truncate(max(i.Grain, time.Millisecond)) }

// StampedBy is by when the broker stamps what is sent now, in all likelihood. A send that takes
// longer needs another companion, or slot, before it is acknowledged.
func (i Instant) StampedBy() time.Time { return i.Time.Add(i.Uncertainty + slot/2) }

// clock is the broker's clock as seen from here: a stamp of the broker, carried on by
// our monotonic clock. That stands still while this machine is suspended. So where our wall clock
// has gone on by a second more, nothing is known until the next measurement.
type clock struct {
	known   chan struct{} // closed when it is measured
	blurred chan struct{} // one token: see Blurred

	mu       sync.Mutex
	measured bool
	at       time.Time     // our clock, with its monotonic reading, at the measurement
	wall     time.Time     // the same without it
	broker   time.Time     // the broker's clock at that instant
	err      time.Duration // half of what the measurement left open
	grain    time.Duration // of the stamps
	asked    time.Time     // our clock, when another measurement was asked for
}

func newClock() *clock {
	return &clock{known: make(chan struct{}), blurred: make(chan struct{}, 1)}
}

// Now reads the broker's clock, as far as it has been measured.
func (c *clock) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	ours := time.Now()
	suspended := c.measured && c.suspendedLocked(ours)
	if suspended {
		c.wantMeasurement()
	}
	if !c.measured || suspended {
		return Instant{Time: ours.UTC()}
	}
	age := ours.Sub(c.at)
	return Instant{
		Time:        c.broker.Add(age).UTC(),
		Measured:    true,
		Uncertainty: c.err + drift(age),
		Grain:       c.grain,
	}
}

func (c *clock) suspendedLocked(ours time.Time) bool {
	return ours.Round(0).Sub(c.wall)-ours.Sub(c.at) > time.Second
}

// Measured is closed when the broker's clock has been measured.
func (c *clock) Measured() <-chan struct{} { return c.known }

// Blurred has a value when the clock had better be measured before its turn. Slots pay, and soon it
// is not known well enough for them, or this machine was suspended.
func (c *clock) Blurred() <-chan struct{} { return c.blurred }

// wantMeasurement gives Blurred a value.
func (c *clock) wantMeasurement() {
	select {
	case c.blurred <- struct{}{}:
	default:
	}
}

// keepSharp asks for a measurement, in as many seconds no more than once as take a third of what
// slots allow. Over a line that is too long for slots it is of no use.
func (c *clock) keepSharp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.measured && c.err < slotClock && drift(now.Sub(c.asked)) >= slotClock/3 {
		c.asked = now
		c.wantMeasurement()
	}
}

// setClock takes the stamp that the broker made between the instants sent and received of our
// clock, and rounded down to the grain. It does not if the known offset is still sharper and agrees
// with it.
func (c *clock) setClock(stamp time.Time, grain time.Duration, sent, received time.Time) {
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
	if !c.measured {
		close(c.known)
	}
	c.measured, c.at, c.wall = true, received, received.Round(0)
	c.broker, c.err, c.grain = stamp.Add(open/2), open/2, grain
}

// drift is what two undisciplined clocks part in a time at most, with a margin: 200 ppm.
func drift(age time.Duration) time.Duration { return age / 5000 }

// probeDelay is how far ahead a probe is scheduled. No clock is wrong by as much, and a probe which
// could not be cancelled goes away soon enough.
const probeDelay = 24 * time.Hour

// probeSubject is the subject of probes.
const probeSubject = "clock-probe"

// A probe is a message on the monitor queue that tells the broker's clock.
type probe struct {
	s              *Scheduler
	lane           *lane
	id             string
	due            time.Time // when it would be activated; zero: at once
	number         int64     // 0: it is not scheduled
	sent, received time.Time // by our clock: around its send
	stamp          time.Time
}

// MeasureClock measures the broker's clock: it schedules a message far ahead on the monitor queue,
// peeks at the enqueued-time that the broker stamped on it, and cancels it. With a companion store,
// whose broker may have no scheduled messages, it sends it, peeks at it and takes it off. It also
// opens the connection over which companions are written. It needs the Listen right. Until it has
// succeeded once, Now is our own clock.
//
// That a message which waits for its activation shows its send time as enqueued-time was seen on a
// live namespace, and is not documented. Should a broker show something else, the stamp lies
// outside of what is plausible and the clock stays unmeasured.
func (s *Scheduler) MeasureClock(ctx context.Context) error {
	l := s.lanes[0]
	err := l.companions.Open(ctx) // the first companion should not wait for it
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = s.measure(ctx, l)
	}
	if err != nil {
		return fmt.Errorf("scheduler: measure the clock of monitor queue %s: %w", l.queue, err)
	}
	return nil
}

// measure sets the clock by a probe. Another one follows if that opened the links, which blurs when
// it was sent. Another one follows, too, if its stamp is a whole second: all stamps may be, or that
// one by chance.
// It may go on for cancelDelay when ctx has ended: otherwise its probe would stay for a day.
func (s *Scheduler) measure(ctx context.Context, l *lane) error {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cancelDelay, cancel) })()
	isFirst := !s.Now().Measured
	for range 2 {
		p := &probe{s: s, lane: l}
		if err := p.run(later); err != nil {
			return err
		}
		grain := time.Millisecond
		if p.stamp.Truncate(time.Second).Equal(p.stamp) {
			grain = time.Second
		}
		s.setClock(p.stamp, grain, p.sent, p.received)
		if !isFirst && grain < time.Second {
			return nil
		}
		isFirst = false
		time.Sleep(2 * time.Millisecond) // so far apart, both are whole seconds only where all are
	}
	return nil
}

// TryWrite writes a probe to a monitor queue and takes it off again, because an open link does not
// show that a queue is full. It costs as much as MeasureClock.
func (s *Scheduler) TryWrite(ctx context.Context, queue string) error {
	i := slices.IndexFunc(s.lanes, func(l *lane) bool { return l.queue == queue })
	if i < 0 {
		return fmt.Errorf("scheduler: %q is no monitor queue", queue)
	}
	if err := (&probe{s: s, lane: s.lanes[i]}).run(ctx); err != nil {
		return fmt.Errorf("scheduler: write to monitor queue %s: %w", queue, err)
	}
	return nil
}

func (p *probe) run(ctx context.Context) error {
	p.id = "overdue-clock-" + rand.Text()
	if p.s.cfg.Store != nil {
		return p.runUnscheduled(ctx)
	}
	p.due = p.s.Now().Time.Add(probeDelay)
	return p.s.manage(ctx, p.lane, func(node *link.Peeker) error {
		err := p.send(func() (err error) {
			p.number, err = node.Schedule(ctx, p.message())
			return err
		})
		if err != nil {
			return err
		}
		err = p.read(ctx, node)
		p.s.cfg.Operations.Add(operations.Probe, 1)
		return errors.Join(err, node.CancelScheduled(ctx, []int64{p.number}))
	})
}

// runUnscheduled is run with a companion store, whose broker may have no scheduled messages.
func (p *probe) runUnscheduled(ctx context.Context) error {
	err := p.send(func() error { return p.s.cfg.Links.Send(ctx, p.lane.queue, p.message().Encoded()) })
	if err != nil {
		return err
	}
	err = p.s.manage(ctx, p.lane, func(node *link.Peeker) error { return p.read(ctx, node) })
	return errors.Join(err, p.receive(ctx))
}

// message is the probe, which expires where it is left behind.
func (p *probe) message() *link.ScheduledMessage {
	return &link.ScheduledMessage{
		MessageID:   p.id,
		Subject:     probeSubject,
		ContentType: contentType,
		Due:         p.due,
		TimeToLive:  time.Minute,
		Body:        []byte(`{"version":0}`),
	}
}

// send notes when the probe was sent and when that was acknowledged.
func (p *probe) send(probe func() error) error {
	p.s.cfg.Operations.Add(operations.Probe, 1)
	p.sent = time.Now()
	err := probe()
	p.received = time.Now()
	if err != nil {
		return fmt.Errorf("send a probe: %w", err)
	}
	return nil
}

// read peeks at the stamp of the probe. One that is not scheduled stands among those of others, and
// nothing else.
func (p *probe) read(ctx context.Context, node *link.Peeker) error {
	p.lane.position.CompareAndSwap(0, p.number) // companions are written behind it
	for position := p.number; ; {
		page, err := node.Peek(ctx, position, link.PageSize)
		p.s.cfg.Operations.Add(operations.Probe, 1)
		switch {
		case err != nil:
			return fmt.Errorf("peek at a probe: %w", err)
		case len(page) == 0:
			return errors.New("a peek does not show the probe")
		}
		i := slices.IndexFunc(page, func(m *link.Message) bool { return m.MessageID == p.id })
		if i < 0 {
			position = page[len(page)-1].SequenceNumber + 1
			continue
		}
		if p.stamp = page[i].EnqueuedTime; p.stamp.IsZero() || !p.due.IsZero() && p.due.Sub(p.stamp) < time.Hour {
			return errors.New("the broker does not show on a probe when it was sent; its clock stays unmeasured")
		}
		return nil
	}
}

// receive completes the probe, which is not scheduled. Messages of others are left alone. If another
// process holds it just now, it expires.
func (p *probe) receive(ctx context.Context) error {
	p.s.cfg.Operations.Add(operations.Probe, 2)
	r, err := p.s.cfg.Links.Receiver(ctx, p.lane.queue)
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))
	var others []*link.ReceivedMessage
	m, err := r.Next(ctx)
	for ; err == nil && m != nil && m.MessageID != p.id; m, err = r.Next(ctx) {
		others = append(others, m)
	}
	if err == nil && m != nil {
		err = r.Complete(ctx, m)
	}
	_, giveBackErr := r.GiveBack(ctx, others...)
	return errors.Join(err, giveBackErr)
}
