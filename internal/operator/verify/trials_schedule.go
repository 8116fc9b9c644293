// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/servicebus/link"
)

var (
	errNothingCame  = errors.New("no message came although one was sent")
	errWholeSeconds = errors.New("the stamps are in whole seconds")
)

const (
	// ahead is how long before their time trials schedule messages. It is longer than the clocks of a
	// namespace and of this machine are apart.
	ahead = 5 * time.Second
	// precise is the lead of a companion before its slot: what comes that late costs no lag.
	precise = 200 * time.Millisecond
)

func schedulePrecise(ctx context.Context, t *trial) answer {
	_, latest, err := t.lateness(ctx)
	switch {
	case err != nil:
		return untold(err)
	case latest > precise:
		return otherwise("the latest was active %v after its time", latest.Round(time.Millisecond))
	}
	return asAssumed("at most %v late", latest.Round(time.Millisecond))
}

func scheduleNotEarly(ctx context.Context, t *trial) answer {
	earliest, _, err := t.lateness(ctx)
	if err != nil {
		return untold(err)
	}
	return when(earliest >= 0, "a message was active %v before its time", -earliest)
}

// lateness schedules messages, and returns how long after their time they were active, by their
// stamps.
func (t *trial) lateness(ctx context.Context) (earliest, latest time.Duration, err error) {
	q, err := t.queue(ctx)
	if err != nil {
		return 0, 0, err
	}
	const n = 5
	var ms []*azservicebus.Message
	start := time.Now().Add(ahead).Truncate(time.Millisecond)
	for i := range n {
		m, at := live(fmt.Sprint("m-", i)), start.Add(time.Duration(i)*300*time.Millisecond)
		m.ScheduledEnqueueTime = &at
		ms = append(ms, m)
	}
	if err := t.send(ctx, q, ms...); err != nil {
		return 0, 0, err
	}
	page, err := t.activated(ctx, q, n)
	if err != nil {
		return 0, 0, err
	}
	if !slices.ContainsFunc(page, func(m *link.Message) bool { return m.EnqueuedTime.Nanosecond() != 0 }) {
		return 0, 0, errWholeSeconds
	}
	late := make([]time.Duration, n)
	for i, m := range page {
		late[i] = m.EnqueuedTime.Sub(m.ScheduledEnqueueTime)
	}
	return slices.Min(late), slices.Max(late), nil
}

// activated waits until n scheduled messages of a queue are active. Late ones have 10 s more.
func (t *trial) activated(ctx context.Context, q string, n int) (page []*link.Message, err error) {
	if err := wait(ctx, ahead+time.Duration(n)*300*time.Millisecond); err != nil {
		return nil, err
	}
	for range 5 {
		if page, err = t.peek(ctx, q, n); err != nil {
			return nil, err
		}
		active := 0
		for _, m := range page {
			if isActivated(m) {
				active++
			}
		}
		if active == n {
			return page, nil
		}
		if err := wait(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%d scheduled messages were not all active 10 s after their time", n)
}

// isActivated reports whether the stamp of a scheduled message is that of its activation, to a
// second. Its state may say scheduled after the activation as well.
func isActivated(m *link.Message) bool {
	return m.EnqueuedTime.After(m.ScheduledEnqueueTime.Add(-time.Second))
}

func batchScheduled(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	due := time.Now().Add(time.Hour)
	var batch link.Batch
	for i := range 2 {
		batch.Add(&link.ScheduledMessage{MessageID: fmt.Sprint("m-", i), Due: due.Add(time.Duration(i) * time.Minute)})
	}
	sender := t.cfg.Links.ReconnectingSender(q)
	defer func() { _ = sender.Close(context.WithoutCancel(ctx)) }() // what was sent has been acknowledged
	t.count(2)
	if err := sender.Send(ctx, &batch); err != nil {
		return untold(err)
	}
	id, err := t.nudge(ctx, q)
	if err != nil {
		return untold(err)
	}
	if id != "" {
		return otherwise("a message that was scheduled for an hour later could be received at once")
	}
	page, err := t.peek(ctx, q, 2)
	if err != nil {
		return untold(err)
	}
	for _, m := range page {
		if m.State != link.Scheduled || m.ScheduledEnqueueTime.IsZero() {
			return otherwise("a peek shows the state %d and the scheduled time %v", m.State, m.ScheduledEnqueueTime)
		}
	}
	return when(len(page) == 2, "a peek shows %d of 2 scheduled messages", len(page))
}

func cancelAllOrNone(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	sender, err := t.cfg.Client.NewSender(q, nil)
	if err != nil {
		return untold(err)
	}
	defer func() { _ = sender.Close(context.WithoutCancel(ctx)) }() // it has nothing in flight
	t.count(2)
	numbers, err := sender.ScheduleMessages(ctx, []*azservicebus.Message{live("gone"), live("there")}, time.Now().Add(time.Hour), nil)
	if err != nil {
		return untold(err)
	}
	t.count(1)
	if err := sender.CancelScheduledMessages(ctx, numbers[:1], nil); err != nil {
		return untold(err)
	}
	t.count(1)
	failed := sender.CancelScheduledMessages(ctx, numbers, nil)
	page, err := t.peek(ctx, q, 2)
	if err != nil {
		return untold(err)
	}
	switch {
	case failed != nil && len(page) == 1:
		return asAssumed("")
	case failed != nil:
		return otherwise("the request failed, and the message that was there was cancelled all the same")
	}
	return otherwise("the request succeeded, and left %d of the messages", len(page))
}

func stampsInMilliseconds(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	const n = 10
	var ms []*azservicebus.Message
	for i := range n {
		ms = append(ms, live(fmt.Sprint("m-", i)))
	}
	if err := t.sendPaced(ctx, q, 37*time.Millisecond, ms...); err != nil {
		return untold(err)
	}
	page, err := t.peek(ctx, q, n)
	if err != nil {
		return untold(err)
	}
	unit := time.Second
	for _, m := range page {
		for unit > time.Millisecond && !m.EnqueuedTime.Truncate(unit).Equal(m.EnqueuedTime) {
			unit /= 10
		}
	}
	return when(unit == time.Millisecond, "the stamps of %d messages are multiples of %v", len(page), unit)
}

func activationRestamps(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	sender, err := t.cfg.Client.NewSender(q, nil)
	if err != nil {
		return untold(err)
	}
	defer func() { _ = sender.Close(context.WithoutCancel(ctx)) }() // it has nothing in flight
	t.count(1)
	numbers, err := sender.ScheduleMessages(ctx, []*azservicebus.Message{live("scheduled")}, time.Now().Add(ahead), nil)
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, q, live("between")); err != nil {
		return untold(err)
	}
	if err := wait(ctx, ahead+2*time.Second); err != nil {
		return untold(err)
	}
	page, err := t.peek(ctx, q, 2)
	if err != nil {
		return untold(err)
	}
	for _, m := range page {
		if m.MessageID == "scheduled" {
			return when(m.SequenceNumber > numbers[0] && isActivated(m),
				"number %d before and %d after, enqueued %v after its time", numbers[0], m.SequenceNumber, m.EnqueuedTime.Sub(m.ScheduledEnqueueTime))
		}
	}
	return untold(errNothingCame)
}
