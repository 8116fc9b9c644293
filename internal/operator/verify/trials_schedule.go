// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/servicebus/link"
)

const (
	errNothingCame  = observation("no message came although one was sent")
	errWholeSeconds = observation("the stamps are in whole seconds")

	// ahead is how long before their time trials schedule messages. It is longer than the clocks of a
	// namespace and of this machine are apart.
	ahead = 5 * time.Second
	// precise is the lead of a companion before its slot: what comes that late costs no lag.
	precise = 200 * time.Millisecond
)

func schedulePrecise(t *trial) answer {
	_, latest := t.lateness()
	if latest > precise {
		return otherwise("the latest was active %v after its time", latest.Round(time.Millisecond))
	}
	return asAssumed("at most %v late", latest.Round(time.Millisecond))
}

func scheduleNotEarly(t *trial) answer {
	earliest, _ := t.lateness()
	return when(earliest >= 0, "a message was active %v before its time", -earliest)
}

// lateness schedules messages, and returns how long after their time they were active, by their
// stamps.
func (t *trial) lateness() (earliest, latest time.Duration) {
	q := t.queue()
	const n = 5
	ms := numbered(n)
	start := time.Now().Add(ahead).Truncate(time.Millisecond)
	for i, m := range ms {
		at := start.Add(time.Duration(i) * 300 * time.Millisecond)
		m.ScheduledEnqueueTime = &at
	}
	t.send(q, ms...)
	page := t.activated(q, n)
	t.do(func() error {
		if !slices.ContainsFunc(page, func(m *link.Message) bool { return m.EnqueuedTime.Nanosecond() != 0 }) {
			return errWholeSeconds
		}
		return nil
	})
	late := make([]time.Duration, n)
	for i, m := range page {
		late[i] = m.EnqueuedTime.Sub(m.ScheduledEnqueueTime)
	}
	return slices.Min(late), slices.Max(late)
}

// activated waits until n scheduled messages of a queue are active. Late ones have 10 s more.
func (t *trial) activated(q string, n int) []*link.Message {
	t.wait(ahead + time.Duration(n)*300*time.Millisecond)
	for range 5 {
		page := t.peek(q, n)
		if len(page) == n && !slices.ContainsFunc(page, func(m *link.Message) bool { return !isActivated(m) }) {
			return page
		}
		t.wait(2 * time.Second)
	}
	t.do(func() error {
		return observation(fmt.Sprintf("%d scheduled messages were not all active 10 s after their time", n))
	})
	return nil
}

// isActivated reports whether the stamp of a scheduled message is that of its activation, to a
// second. Its state may say scheduled after the activation as well.
func isActivated(m *link.Message) bool {
	return m.EnqueuedTime.After(m.ScheduledEnqueueTime.Add(-time.Second))
}

func batchScheduled(t *trial) answer {
	q := t.queue()
	due := time.Now().Add(time.Hour)
	var batch link.Batch
	for i := range 2 {
		batch.Add(&link.ScheduledMessage{MessageID: fmt.Sprint("m-", i), Due: due.Add(time.Duration(i) * time.Minute)})
	}
	t.do(func() error {
		sender := t.cfg.Links.ReconnectingSender(q)
		t.links = append(t.links, sender)
		t.operations += 2
		return sender.Send(t.ctx, &batch)
	})
	if id := t.nudge(q); id != "" {
		return otherwise("a message that was scheduled for an hour later could be received at once")
	}
	page := t.peek(q, 2)
	for _, m := range page {
		if m.State != link.Scheduled || m.ScheduledEnqueueTime.IsZero() {
			return otherwise("a peek shows the state %d and the scheduled time %v", m.State, m.ScheduledEnqueueTime)
		}
	}
	return when(len(page) == 2, "a peek shows %d of 2 scheduled messages", len(page))
}

// schedule schedules messages with the SDK, and returns their numbers.
func (t *trial) schedule(q string, after time.Duration, ms ...*azservicebus.Message) (s *azservicebus.Sender, numbers []int64) {
	s = t.sender(q)
	t.do(func() (err error) {
		t.operations += len(ms)
		numbers, err = s.ScheduleMessages(t.ctx, ms, time.Now().Add(after), nil)
		return err
	})
	return s, numbers
}

func cancelAllOrNone(t *trial) answer {
	q := t.queue()
	s, numbers := t.schedule(q, time.Hour, live("gone"), live("there"))
	var refusal error
	t.do(func() error {
		t.operations += 2
		if err := s.CancelScheduledMessages(t.ctx, numbers[:1], nil); err != nil {
			return err
		}
		refusal = s.CancelScheduledMessages(t.ctx, numbers, nil)
		return nil
	})
	switch page := t.peek(q, 2); {
	case refusal != nil && len(page) == 1:
		return asAssumed("")
	case refusal != nil:
		return otherwise("the request failed, and the message that was there was cancelled all the same")
	default:
		return otherwise("the request succeeded, and left %d of the messages", len(page))
	}
}

func stampsInMilliseconds(t *trial) answer {
	q := t.queue()
	const n = 10
	t.sendPaced(q, 37*time.Millisecond, numbered(n)...)
	page := t.peek(q, n)
	unit := time.Second
	for _, m := range page {
		for unit > time.Millisecond && !m.EnqueuedTime.Truncate(unit).Equal(m.EnqueuedTime) {
			unit /= 10
		}
	}
	return when(unit == time.Millisecond, "the stamps of %d messages are multiples of %v", len(page), unit)
}

func activationRestamps(t *trial) answer {
	q := t.queue()
	_, numbers := t.schedule(q, ahead, live("scheduled"))
	t.send(q, live("between"))
	t.wait(ahead + 2*time.Second)
	for _, m := range t.peek(q, 2) {
		if m.MessageID == "scheduled" {
			return when(m.SequenceNumber > numbers[0] && isActivated(m),
				"number %d before and %d after, enqueued %v after its time", numbers[0], m.SequenceNumber, m.EnqueuedTime.Sub(m.ScheduledEnqueueTime))
		}
	}
	return unclear(string(errNothingCame))
}
