// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
)

const (
	// plainProbe begins the message-ids of probes that are not scheduled.
	plainProbe = "overdue-clock-"
	// plainTTL lets a probe expire that nobody has taken away; plainOld is when others than its
	// sender do.
	plainTTL = 2 * time.Minute
	plainOld = time.Minute
	// plainPages bounds how far a probe is looked for, and plainTidy how many are taken away at once.
	plainPages = 400
	plainTidy  = 10
)

// measurePlain is MeasureClock for a tier without scheduled messages: the probe is a plain message,
// found by a peek and taken away. On the monitor queue there is nothing else then but the probes of
// others, whose are left alone.
func (s *Scheduler) measurePlain(ctx context.Context) error {
	id := plainProbe + rand.Text()
	probe := newProbe(plainTTL)
	probe.MessageID = &id
	var sent, received time.Time
	err := s.lanes[0].requests.Do(ctx, func(ctx context.Context, sender *azservicebus.Sender) error {
		if _, err := sender.NewMessageBatch(ctx, nil); err != nil { // which opens the link, or that would blur the measurement
			return err
		}
		sent = time.Now()
		err := sender.SendMessage(ctx, probe, nil)
		received = time.Now()
		return err
	})
	if err != nil {
		return fmt.Errorf("scheduler: send a clock probe to %s: %w", s.lanes[0].queue, err)
	}
	s.cfg.Operations.Add(operations.Probe, 1)
	stamp, number, err := s.findProbe(ctx, id)
	if tidyErr := s.tidyProbes(ctx, id, stamp); err == nil && tidyErr != nil {
		err = fmt.Errorf("scheduler: take the clock probe off %s: %w", s.lanes[0].queue, tidyErr)
	}
	if err != nil {
		return err
	}
	s.setClock(stamp, sent, received)
	s.lanes[0].probes.add(number, received)
	return nil
}

// findProbe peeks at the probe with that id.
func (s *Scheduler) findProbe(ctx context.Context, id string) (stamp time.Time, number int64, err error) {
	p, err := s.cfg.Links.Peeker(ctx, s.lanes[0].queue)
	if err != nil {
		return stamp, 0, fmt.Errorf("scheduler: peek at the clock probe on %s: %w", s.lanes[0].queue, err)
	}
	defer p.Close(context.WithoutCancel(ctx))
	at := s.lanes[0].probes.from(0, time.Now())
	for range plainPages {
		page, err := p.Peek(ctx, at, cancelBatch)
		s.cfg.Operations.Add(operations.Probe, 1)
		if err != nil {
			return stamp, 0, fmt.Errorf("scheduler: peek at the clock probe on %s: %w", s.lanes[0].queue, err)
		}
		for _, m := range page {
			if m.MessageID == id {
				return m.EnqueuedTime, m.SequenceNumber, nil
			}
			at = m.SequenceNumber + 1
		}
		if len(page) == 0 {
			break
		}
	}
	s.lanes[0].probes.forget() // perhaps the queue was made again
	return stamp, 0, errors.New("scheduler: a peek does not show the clock probe; the broker's clock stays unmeasured")
}

// tidyProbes takes away the probe with that id, and those that others have left behind.
func (s *Scheduler) tidyProbes(ctx context.Context, id string, now time.Time) error {
	r, err := s.cfg.Links.Receiver(ctx, s.lanes[0].queue)
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))
	var others []*link.ReceivedMessage
	for ours := false; !ours && len(others) < plainTidy; {
		var m *link.ReceivedMessage
		if m, err = r.Next(ctx); m == nil || err != nil {
			break
		}
		s.cfg.Operations.Add(operations.Probe, 2)
		switch ours = m.MessageID == id; {
		case ours, strings.HasPrefix(m.MessageID, plainProbe) && m.EnqueuedTime.Before(now.Add(-plainOld)):
			err = r.Complete(ctx, m)
		default:
			others = append(others, m)
		}
		if err != nil {
			break
		}
	}
	if _, giveBackErr := r.GiveBack(ctx, others...); err == nil {
		err = giveBackErr
	}
	if link.Condition(err) == link.ConditionLockLost {
		return nil // its lock has lapsed: another takes it away
	}
	return err
}
