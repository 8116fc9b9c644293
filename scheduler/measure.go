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
	// probeGrace is how long a measurement may go on when its context has ended. One that stopped
	// at once would leave its probes on the monitor queue for a day.
	probeGrace = 2 * time.Second
	// probeSubject is the subject of probes.
	probeSubject = "clock-probe"
)

// A measurement is two probes on the monitor queue. The first opens the links, which blurs when it
// was sent; the second tells the broker's clock. Both together tell whether stamps are whole
// seconds.
type measurement struct {
	s              *Scheduler
	lane           *lane
	due            time.Time // when the probes would be activated; zero: at once
	ids            []string  // message-ids of those that were sent
	numbers        []int64   // of those that are scheduled
	stamps         []time.Time
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
	m := measurement{s: s, lane: s.lanes[0]}
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
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(probeGrace, cancel) })()
	if m.s.cfg.Store == nil {
		m.due = m.s.Now().Time.Add(probeDelay)
	}
	err := m.send(later)
	if err == nil {
		time.Sleep(2 * time.Millisecond) // so far apart, both are whole seconds only where all are
		err = m.send(later)
	}
	if err == nil {
		err = m.s.manage(later, m.lane, func(node *link.Peeker) error { return m.read(later, node) })
	}
	if len(m.ids) > 0 {
		err = errors.Join(err, m.remove(later))
	}
	if err != nil {
		return err
	}
	grain := time.Second
	if slices.ContainsFunc(m.stamps, func(t time.Time) bool { return !t.Truncate(time.Second).Equal(t) }) {
		grain = time.Millisecond
	}
	m.s.clock.set(m.stamps[len(m.stamps)-1], grain, m.sent, m.received)
	return nil
}

// send sends one probe, which expires where it is left behind.
func (m *measurement) send(ctx context.Context) error {
	id := "overdue-clock-" + rand.Text()
	probe := &azservicebus.Message{
		MessageID:   &id,
		Body:        []byte(`{"version":0}`),
		Subject:     to.Ptr(probeSubject),
		ContentType: to.Ptr(contentType),
		TimeToLive:  to.Ptr(time.Minute),
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
func (m *measurement) read(ctx context.Context, node *link.Peeker) error {
	position := int64(0)
	if len(m.numbers) > 0 {
		position = m.numbers[0]
		m.lane.position.CompareAndSwap(0, position) // companions are written behind it
	}
	for len(m.stamps) < len(m.ids) {
		page, err := node.Peek(ctx, position, cancelBatch)
		m.s.cfg.Operations.Add(operations.Probe, 1)
		switch {
		case err != nil:
			return fmt.Errorf("peek at a probe: %w", err)
		case len(page) == 0:
			return errors.New("a peek does not show the probe")
		}
		for _, p := range page {
			position = p.SequenceNumber + 1
			switch {
			case !slices.Contains(m.ids, p.MessageID):
			case p.EnqueuedTime.IsZero(), !m.due.IsZero() && m.due.Sub(p.EnqueuedTime) < time.Hour:
				return errors.New("the broker does not show on a probe when it was sent; its clock stays unmeasured")
			default:
				m.stamps = append(m.stamps, p.EnqueuedTime)
			}
		}
	}
	return nil
}

// remove takes the probes off the queue again. After the refusal that says that they are being
// cancelled, the SDK would open its connection again.
func (m *measurement) remove(ctx context.Context) (err error) {
	m.s.cfg.Operations.Add(operations.Probe, 1)
	if m.due.IsZero() {
		err = m.receive(ctx)
	} else {
		err = m.s.manage(ctx, m.lane, func(node *link.Peeker) error { return node.CancelScheduled(ctx, m.numbers) })
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
