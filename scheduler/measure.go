// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
)

const (
	// probeDelay is how far ahead a probe is scheduled: so far that no clock is wrong by as much, so
	// near that a probe which could not be cancelled goes away.
	probeDelay = 24 * time.Hour
	// probeTTL lets a probe expire that was left behind.
	probeTTL = time.Minute
	// probePause is between two probes. Stamps so far apart cannot both be whole seconds, unless the
	// broker cuts them.
	probePause = 7 * time.Millisecond
	// probeGrace is how long a measurement may go on when its context has ended. One that stopped
	// at once would leave its probes on the monitor queue for a day.
	probeGrace = 2 * time.Second
	// probeSubject is the subject of probes.
	probeSubject = "clock-probe"
)

// A measurement is two probes on the monitor queue. The first opens the links, which blurs when it
// was sent; the second tells the broker's clock.
type measurement struct {
	s              *Scheduler
	lane           *lane
	due            time.Time // when the probes would be activated; zero: at once
	ids            []string  // message-ids of those that were sent
	numbers        []int64   // of those that are scheduled
	sent, received time.Time // by our clock: around the send of the last
}

// MeasureClock measures the broker's clock: it schedules messages far ahead on the monitor queue,
// peeks at the enqueued-time that the broker stamped on them, and cancels them. With a companion
// store, whose broker may have no scheduled messages, it sends them, peeks at them and takes them
// off. It also opens the connection over which companions are written. It needs the Listen right.
// Until it has succeeded once, Now is our own clock.
//
// That a message which waits for its activation shows its send time as enqueued-time was seen on a
// live namespace, and is not documented. Should a broker show something else, the stamp lies
// outside of what is plausible and the clock stays unmeasured.
func (s *Scheduler) MeasureClock(ctx context.Context) error {
	m := measurement{
		s:    s,
		lane: s.lanes[0],
	}
	err := m.lane.companions.Open(ctx) // the first companion should not wait for it
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = m.run(ctx)
	}
	if err != nil {
		return fmt.Errorf("scheduler: measure the clock of monitor queue %s: %w", m.lane.queue, err)
	}
	s.onceMeasured.Do(func() { close(s.measured) })
	return nil
}

func (m *measurement) run(ctx context.Context) error {
	ctx, end := endLater(ctx, probeGrace)
	defer end()
	if m.s.cfg.Store == nil {
		m.due = m.s.Now().Time.Add(probeDelay)
	}
	err := m.send(ctx)
	if err == nil {
		time.Sleep(probePause)
		err = m.send(ctx)
	}
	var stamps []time.Time
	if err == nil {
		stamps, err = m.read(ctx)
	}
	if len(m.ids) > 0 {
		err = errors.Join(err, m.remove(ctx))
	}
	if err != nil {
		return err
	}
	m.s.clock.set(stamps[len(stamps)-1], grainOf(stamps), m.sent, m.received)
	return nil
}

// grainOf is to what the broker cuts its stamps, of which there are some.
func grainOf(stamps []time.Time) time.Duration {
	for _, stamp := range stamps {
		if !stamp.Truncate(coarseGrain).Equal(stamp) {
			return stampGrain
		}
	}
	return coarseGrain
}

// send sends one probe. A monitor that receives it finds a version that it cannot read.
func (m *measurement) send(ctx context.Context) error {
	id := "overdue-clock-" + rand.Text()
	probe := &azservicebus.Message{
		MessageID:   &id,
		Body:        []byte(`{"version":0}`),
		Subject:     to.Ptr(probeSubject),
		ContentType: to.Ptr(contentType),
		TimeToLive:  to.Ptr(probeTTL),
	}
	err := m.lane.requests.Do(ctx, func(ctx context.Context, sender *azservicebus.Sender) (err error) {
		var numbers []int64
		m.sent = time.Now()
		if m.due.IsZero() {
			err = sender.SendMessage(ctx, probe, nil)
		} else {
			numbers, err = sender.ScheduleMessages(ctx, []*azservicebus.Message{probe}, m.due, nil)
		}
		m.received = time.Now()
		m.numbers = append(m.numbers, numbers...)
		return err
	})
	if err != nil {
		return fmt.Errorf("send a probe: %w", err)
	}
	m.s.cfg.Operations.Add(operations.Probe, 1)
	m.ids = append(m.ids, id)
	return nil
}

// read peeks at the stamps of the probes, in the order in which they were sent. Those that are not
// scheduled stand among the probes of others, and nothing else.
func (m *measurement) read(ctx context.Context) (stamps []time.Time, err error) {
	node, err := m.s.cfg.Links.Peeker(ctx, m.lane.queue)
	if err != nil {
		return nil, fmt.Errorf("peek at a probe: %w", err)
	}
	defer node.Close(context.WithoutCancel(ctx))
	position := int64(0)
	if len(m.numbers) > 0 {
		position = m.numbers[0]
		m.lane.position.CompareAndSwap(0, position) // companions are written behind it
	}
	for len(stamps) < len(m.ids) {
		page, err := node.Peek(ctx, position, cancelBatch)
		m.s.cfg.Operations.Add(operations.Probe, 1)
		if err != nil {
			return nil, fmt.Errorf("peek at a probe: %w", err)
		}
		if len(page) == 0 {
			return nil, errors.New("a peek does not show the probe")
		}
		for _, p := range page {
			position = p.SequenceNumber + 1
			if !slices.Contains(m.ids, p.MessageID) {
				continue
			}
			if err := m.check(p); err != nil {
				return nil, err
			}
			stamps = append(stamps, p.EnqueuedTime)
		}
	}
	return stamps, nil
}

// check reports whether a probe shows when it was sent.
func (m *measurement) check(p *link.Message) error {
	switch {
	case p.EnqueuedTime.IsZero():
		return errors.New("the broker shows no enqueued-time on a probe; its clock stays unmeasured")
	case !m.due.IsZero() && m.due.Sub(p.EnqueuedTime) < time.Hour:
		return errors.New("the broker stamps a scheduled message with its activation time; its clock stays unmeasured")
	}
	return nil
}

// remove takes the probes off the queue again.
func (m *measurement) remove(ctx context.Context) error {
	m.s.cfg.Operations.Add(operations.Probe, 1)
	var err error
	if m.due.IsZero() {
		err = m.receive(ctx)
	} else {
		err = m.s.cancelOn(ctx, m.lane, m.numbers)
	}
	if err != nil {
		return fmt.Errorf("take a probe off: %w", err)
	}
	return nil
}

// receive completes the probes, which are not scheduled. Those of others are left alone. One that
// another process holds just now expires.
func (m *measurement) receive(ctx context.Context) error {
	r, err := m.s.cfg.Links.Receiver(ctx, m.lane.queue)
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))
	var others []*link.ReceivedMessage
	for ours := 0; ours < len(m.ids) && err == nil; {
		var received *link.ReceivedMessage
		if received, err = r.Next(ctx); received == nil || err != nil {
			break
		}
		if !slices.Contains(m.ids, received.MessageID) {
			others = append(others, received)
			continue
		}
		ours++
		m.s.cfg.Operations.Add(operations.Probe, 1)
		err = r.Complete(ctx, received)
	}
	_, giveBackErr := r.GiveBack(ctx, others...)
	return errors.Join(err, giveBackErr)
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
