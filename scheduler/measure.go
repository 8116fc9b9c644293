// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
)

const (
	// probeDelay is how far ahead a probe is scheduled. No clock is wrong by as much, and a probe
	// which could not be cancelled goes away soon enough.
	probeDelay = 24 * time.Hour
	// probeGrace is how long a measurement may go on when its context has ended. One that stopped
	// at once would leave its probe on the monitor queue for a day.
	probeGrace = 2 * time.Second
	// probeSubject is the subject of probes.
	probeSubject = "clock-probe"
)

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
	s.onceMeasured.Do(func() { close(s.measured) })
	return nil
}

// measure sets the clock by a probe. Another one follows if that opened the links, which blurs when
// it was sent. Another one follows, too, if its stamp is a whole second: all stamps may be, or that
// one by chance.
func (s *Scheduler) measure(ctx context.Context, l *lane) error {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(probeGrace, cancel) })()
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
		s.clock.set(p.stamp, grain, p.sent, p.received)
		if !isFirst && grain < time.Second {
			return nil
		}
		isFirst = false
		time.Sleep(2 * time.Millisecond) // so far apart, both are whole seconds only where all are
	}
	return nil
}

func (p *probe) run(ctx context.Context) error {
	if p.s.cfg.Store == nil {
		p.due = p.s.Now().Time.Add(probeDelay)
	}
	if err := p.send(ctx); err != nil {
		return fmt.Errorf("send a probe: %w", err)
	}
	err := p.s.manage(ctx, p.lane, func(node *link.Peeker) error { return p.read(ctx, node) })
	if removeErr := p.remove(ctx); removeErr != nil {
		err = errors.Join(err, fmt.Errorf("take a probe off: %w", removeErr))
	}
	return err
}

// send sends the probe, which expires where it is left behind.
func (p *probe) send(ctx context.Context) error {
	p.id = "overdue-clock-" + rand.Text()
	message := &azservicebus.Message{
		MessageID:   &p.id,
		Body:        []byte(`{"version":0}`),
		Subject:     to.Ptr(probeSubject),
		ContentType: to.Ptr(contentType),
		TimeToLive:  to.Ptr(time.Minute),
	}
	p.s.cfg.Operations.Add(operations.Probe, 1)
	return p.lane.requests.Do(ctx, func(ctx context.Context, sender *azservicebus.Sender) (err error) {
		numbers := []int64{0}
		p.sent = time.Now()
		if p.due.IsZero() {
			err = sender.SendMessage(ctx, message, nil)
		} else {
			numbers, err = sender.ScheduleMessages(ctx, []*azservicebus.Message{message}, p.due, nil)
		}
		p.received = time.Now()
		if err == nil {
			p.number = numbers[0]
		}
		return err
	})
}

// read peeks at the stamp of the probe. One that is not scheduled stands among those of others, and
// nothing else.
func (p *probe) read(ctx context.Context, node *link.Peeker) error {
	if p.number != 0 {
		p.lane.position.CompareAndSwap(0, p.number) // companions are written behind it
	}
	for position := p.number; ; {
		page, err := node.Peek(ctx, position, cancelBatch)
		p.s.cfg.Operations.Add(operations.Probe, 1)
		switch {
		case err != nil:
			return fmt.Errorf("peek at a probe: %w", err)
		case len(page) == 0:
			return errors.New("a peek does not show the probe")
		}
		for _, m := range page {
			position = m.SequenceNumber + 1
			if m.MessageID != p.id {
				continue
			}
			if p.stamp = m.EnqueuedTime; p.stamp.IsZero() || !p.due.IsZero() && p.due.Sub(p.stamp) < time.Hour {
				return errors.New("the broker does not show on a probe when it was sent; its clock stays unmeasured")
			}
			return nil
		}
	}
}

// remove takes the probe off the queue again. After the refusal that says that it is being
// cancelled, the SDK would open its connection again.
func (p *probe) remove(ctx context.Context) error {
	p.s.cfg.Operations.Add(operations.Probe, 1)
	if p.due.IsZero() {
		return p.receive(ctx)
	}
	return p.s.manage(ctx, p.lane, func(node *link.Peeker) error { return node.CancelScheduled(ctx, []int64{p.number}) })
}

// receive completes the probe, which is not scheduled. Those of others are left alone. If another
// process holds it just now, it expires.
func (p *probe) receive(ctx context.Context) error {
	r, err := p.s.cfg.Links.Receiver(ctx, p.lane.queue)
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))
	var others []*link.ReceivedMessage
	for {
		m, nextErr := r.Next(ctx)
		if m != nil && nextErr == nil && m.MessageID != p.id {
			others = append(others, m)
			continue
		}
		if err = nextErr; m != nil && err == nil {
			p.s.cfg.Operations.Add(operations.Probe, 1)
			err = r.Complete(ctx, m)
		}
		_, giveBackErr := r.GiveBack(ctx, others...)
		return errors.Join(err, giveBackErr)
	}
}
