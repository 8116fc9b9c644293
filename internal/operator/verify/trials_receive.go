// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/servicebus/link"
)

func releaseKeepsCount(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, q, live("innocent")); err != nil {
		return untold(err)
	}
	const times = 2
	for range times {
		if id, err := t.nudge(ctx, q); err != nil {
			return untold(err)
		} else if id == "" {
			return untold(errNothingCame)
		}
	}
	page, err := t.peek(ctx, q, 1)
	if err != nil {
		return untold(err)
	}
	if len(page) == 0 {
		return otherwise("the message is gone after it was released %d times", times)
	}
	return when(page[0].DeliveryCount == 0, "the delivery count is %d after a message was released %d times", page[0].DeliveryCount, times)
}

func releaseKeepsPlace(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, q, live("first"), live("second"), live("third")); err != nil {
		return untold(err)
	}
	for range 2 {
		if _, err := t.nudge(ctx, q); err != nil {
			return untold(err)
		}
	}
	var order []string
	err = t.receive(ctx, q, 3, func(r *link.Receiver, ms []*link.ReceivedMessage) error {
		for _, m := range ms {
			order = append(order, m.MessageID)
		}
		return release(ctx, r, ms)
	})
	if err != nil {
		return untold(err)
	}
	return when(fmt.Sprint(order) == "[first second third]", "after the first message was released twice, they came as %v", order)
}

func peekShowsExpired(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, q, mortal("overdue")); err != nil {
		return untold(err)
	}
	if err := wait(ctx, expired); err != nil {
		return untold(err)
	}
	page, err := t.peek(ctx, q, 1)
	if err != nil {
		return untold(err)
	}
	if len(page) == 1 {
		return asAssumed("")
	}
	switch _, err := t.letter(ctx, q); {
	case errors.Is(err, errNoLetter):
		return otherwise("a message that had expired was in neither queue")
	case err != nil:
		return untold(err)
	}
	return answer{Unknown, "it went to the dead-letter queue although nobody had received"}
}

func peekShowsLocked(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, q, live("locked")); err != nil {
		return untold(err)
	}
	var page []*link.Message
	err = t.receive(ctx, q, 1, func(r *link.Receiver, ms []*link.ReceivedMessage) (err error) {
		page, err = t.peek(ctx, q, 1)
		return err
	})
	if err != nil {
		return untold(err)
	}
	return when(len(page) == 1, "a peek showed nothing while a consumer had the message")
}

func peekPage(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	const n = 250
	if err := t.sendBatch(ctx, q, n); err != nil {
		return untold(err)
	}
	page, err := t.peek(ctx, q, n)
	if err != nil {
		return untold(err)
	}
	return when(len(page) == n, "a peek for %d returned %d", n, len(page))
}

// sendBatch sends n messages in one transfer. The service counts each as an operation of up to
// 64 KiB, so small ones cost little more than their number.
func (t *trial) sendBatch(ctx context.Context, q string, n int) error {
	sender, err := t.cfg.Client.NewSender(q, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sender.Close(context.WithoutCancel(ctx)) }() // what was sent has been acknowledged
	batch, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	for i := range n {
		if err := batch.AddMessage(live(fmt.Sprint("m-", i)), nil); err != nil {
			return err
		}
	}
	t.count(n)
	return sender.SendMessageBatch(ctx, batch, nil)
}

func drainAnswered(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	r, err := t.cfg.Links.Receiver(ctx, q)
	if err != nil {
		return untold(err)
	}
	defer r.Close(ctx)
	t.count(1)
	if err := r.Grant(ctx, 1); err != nil {
		return untold(err)
	}
	// go-amqp forgets credit that is drained before it is written.
	if m, err := r.Receive(ctx, nudgeWait); err != nil || m != nil {
		return untold(fmt.Errorf("a receive from an empty queue returned %v, %w", m != nil, err))
	}
	began := time.Now()
	if err := r.Drain(ctx); err != nil && ctx.Err() == nil {
		return otherwise("no answer came within %v", time.Since(began).Round(100*time.Millisecond))
	}
	return asAssumed("")
}

func sessionFilter(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx, func(p *admin.QueueProperties) { p.RequiresSession = to.Ptr(true) })
	if err != nil {
		return untold(err)
	}
	one, two := live("one"), live("two")
	one.SessionID, two.SessionID = to.Ptr("a"), to.Ptr("b")
	if err := t.send(ctx, q, one, two); err != nil {
		return untold(err)
	}
	page, err := t.peek(ctx, q, 2)
	if err == nil && len(page) == 0 { // at times it is
		page, err = t.peek(ctx, q, 2)
	}
	if err != nil {
		return otherwise("a peek without a session failed: %v", err)
	}
	if len(page) != 2 {
		return otherwise("a peek without a session showed %d of 2 messages", len(page))
	}
	r, err := t.cfg.Links.BareReceiver(ctx, q, to.Ptr("b"))
	if err != nil {
		return otherwise("a session was not accepted: %v", err)
	}
	defer r.Close(ctx)
	m, err := t.one(ctx, r)
	if err != nil {
		return untold(err)
	}
	if m == nil {
		return otherwise("no message came in the session")
	}
	if err := r.Release(ctx, m); err != nil {
		return untold(err)
	}
	number := m.SequenceNumber
	return when(number == page[1].SequenceNumber, "the session b gave out the message %d, and its own is %d", number, page[1].SequenceNumber)
}

func forwardRenumbers(ctx context.Context, t *trial) answer {
	target, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	// A queue that forwards is never idle, and the SDK writes ForwardTo where the service does not
	// apply it if AutoDeleteOnIdle is stated.
	from, err := t.queue(ctx, func(p *admin.QueueProperties) { p.ForwardTo, p.AutoDeleteOnIdle = &target, nil })
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, target, live("before"), live("between")); err != nil {
		return untold(err)
	}
	if err := t.send(ctx, from, live("forwarded")); err != nil {
		return untold(err)
	}
	for range 10 {
		page, err := t.peek(ctx, target, 3)
		if err != nil {
			return untold(err)
		}
		if len(page) == 3 {
			last := page[2]
			return when(last.MessageID == "forwarded" && !last.EnqueuedTime.Before(page[1].EnqueuedTime) && last.SequenceNumber > page[1].SequenceNumber,
				"the messages of the target are %v", ids(page))
		}
		if err := wait(ctx, time.Second); err != nil {
			return untold(err)
		}
	}
	return answer{Unknown, "it was not forwarded within 10 s"}
}

func partitionNumbers(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx, func(p *admin.QueueProperties) { p.EnablePartitioning = to.Ptr(true) })
	if err != nil {
		return untold(err) // Premium refuses it
	}
	const n = 20
	var ms []*azservicebus.Message
	for i := range n {
		m := live(fmt.Sprint("m-", i))
		m.PartitionKey = to.Ptr(fmt.Sprint("key-", i%4))
		ms = append(ms, m)
	}
	if err := t.send(ctx, q, ms...); err != nil {
		return untold(err)
	}
	last := map[int64]time.Time{}
	seen := 0
	p, err := t.cfg.Links.Peeker(ctx, q)
	if err != nil {
		return untold(err)
	}
	defer p.Close(ctx)
	for from := int64(0); seen < n; {
		t.count(1)
		page, err := p.Peek(ctx, from, n)
		if err != nil {
			return untold(err)
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			partition := m.SequenceNumber >> 48
			if m.EnqueuedTime.Before(last[partition]) {
				return otherwise("in partition %d, number %d was enqueued before a lower one", partition, m.SequenceNumber)
			}
			last[partition] = m.EnqueuedTime
			from = m.SequenceNumber + 1
			seen++
		}
	}
	return when(seen == n && len(last) > 1, "peeks by number showed %d of %d messages, in %d partitions", seen, n, len(last))
}

func addresses(ctx context.Context, t *trial) answer {
	q := t.prefix + "/with.dots/and_more"
	t.mu.Lock()
	t.made = append(t.made, q)
	t.mu.Unlock()
	if err := t.create(ctx, q, &admin.QueueProperties{AutoDeleteOnIdle: to.Ptr(idle)}); err != nil {
		return untold(err)
	}
	if _, err := t.peek(ctx, q, 1); err != nil {
		return otherwise("a peek at a queue with slashes and dots in its name failed: %v", err)
	}
	escaped := t.prefix + "%2Fwith.dots%2Fand_more"
	_, err := t.peek(ctx, escaped, 1)
	if err == nil {
		return otherwise("an address with escaped slashes led to the queue")
	}
	if ctx.Err() != nil {
		return untold(err)
	}
	return asAssumed("")
}
