// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/servicebus/link"
)

func releaseKeepsCount(t *trial) answer {
	q := t.queue()
	t.send(q, live("innocent"))
	const times = 2
	for range times {
		if id := t.nudge(q); id == "" {
			return unclear(string(errNothingCame))
		}
	}
	page := t.peek(q, 1)
	if len(page) == 0 {
		return otherwise("the message is gone after it was released %d times", times)
	}
	return when(page[0].DeliveryCount == 0, "the delivery count is %d after a message was released %d times", page[0].DeliveryCount, times)
}

func releaseKeepsPlace(t *trial) answer {
	q := t.queue()
	t.send(q, live("first"), live("second"), live("third"))
	t.nudge(q)
	t.nudge(q)
	var order []string
	t.receive(q, 3, func(r *link.Receiver, ms []*link.ReceivedMessage) error {
		for _, m := range ms {
			order = append(order, m.MessageID)
		}
		return t.release(r, ms)
	})
	return when(fmt.Sprint(order) == "[first second third]", "after the first message was released twice, they came as %v", order)
}

func peekShowsExpired(t *trial) answer {
	q := t.queue()
	t.send(q, mortal("overdue"))
	t.wait(expired)
	switch {
	case len(t.peek(q, 1)) == 1:
		return asAssumed("")
	case t.letter(q) == nil:
		return otherwise("a message that had expired was in neither queue")
	}
	return unclear("it went to the dead-letter queue although nobody had received")
}

func peekShowsLocked(t *trial) answer {
	q := t.queue()
	t.send(q, live("locked"))
	var page []*link.Message
	t.receive(q, 1, func(*link.Receiver, []*link.ReceivedMessage) (err error) {
		page, err = t.tryPeek(q, 1)
		return err
	})
	return when(len(page) == 1, "a peek showed nothing while a consumer had the message")
}

func peekPage(t *trial) answer {
	q := t.queue()
	const n = 250
	t.sendBatch(q, n)
	page := t.peek(q, n)
	return when(len(page) == n, "a peek for %d returned %d", n, len(page))
}

// sendBatch sends n messages in one transfer. The service counts each as an operation of up to
// 64 KiB, so small ones cost little more than their number.
func (t *trial) sendBatch(q string, n int) {
	s := t.sender(q)
	t.do(func() error {
		batch, err := s.NewMessageBatch(t.ctx, nil)
		if err != nil {
			return err
		}
		for _, m := range numbered(n) {
			if err := batch.AddMessage(m, nil); err != nil {
				return err
			}
		}
		t.operations += n
		return s.SendMessageBatch(t.ctx, batch, nil)
	})
}

func drainAnswered(t *trial) (found answer) {
	q := t.queue()
	t.do(func() error {
		r, err := t.cfg.Links.Receiver(t.ctx, q)
		if err != nil {
			return err
		}
		defer r.Close(t.ctx)
		// go-amqp forgets credit that is drained before it is written.
		if m, err := t.one(r); err != nil || m != nil {
			return fmt.Errorf("a receive from an empty queue returned %v, %w", m != nil, err)
		}
		began := time.Now()
		err = r.Drain(t.ctx)
		found = when(err == nil || t.ctx.Err() != nil, "no answer came within %v", time.Since(began).Round(100*time.Millisecond))
		return nil
	})
	return found
}

func sessionFilter(t *trial) (found answer) {
	q := t.queue(func(p *admin.QueueProperties) { p.RequiresSession = to.Ptr(true) })
	one, two := live("one"), live("two")
	one.SessionID, two.SessionID = to.Ptr("a"), to.Ptr("b")
	t.send(q, one, two)
	t.do(func() error {
		page, err := t.tryPeek(q, 2)
		if err == nil && len(page) == 0 { // at times it is
			page, err = t.tryPeek(q, 2)
		}
		switch {
		case err != nil:
			found = refused("a peek without a session", err)
			return nil
		case len(page) != 2:
			found = otherwise("a peek without a session showed %d of 2 messages", len(page))
			return nil
		}
		r, err := t.cfg.Links.BareReceiver(t.ctx, q, to.Ptr("b"))
		if err != nil {
			found = refused("accepting a session", err)
			return nil
		}
		defer r.Close(t.ctx)
		m, err := t.one(r)
		if err != nil {
			return err
		}
		if m == nil {
			found = otherwise("no message came in the session")
			return nil
		}
		number := m.SequenceNumber
		found = when(number == page[1].SequenceNumber, "the session b gave out the message %d, and its own is %d", number, page[1].SequenceNumber)
		return r.Release(t.ctx, m)
	})
	return found
}

func forwardRenumbers(t *trial) answer {
	target := t.queue()
	// A queue that forwards is never idle, and the SDK writes ForwardTo where the service does not
	// apply it if AutoDeleteOnIdle is stated.
	from := t.queue(func(p *admin.QueueProperties) { p.ForwardTo, p.AutoDeleteOnIdle = &target, nil })
	t.send(target, live("before"), live("between"))
	t.send(from, live("forwarded"))
	for range 10 {
		if page := t.peek(target, 3); len(page) == 3 {
			last := page[2]
			return when(last.MessageID == "forwarded" && !last.EnqueuedTime.Before(page[1].EnqueuedTime) && last.SequenceNumber > page[1].SequenceNumber,
				"the messages of the target are %v", ids(page))
		}
		t.wait(time.Second)
	}
	return unclear("it was not forwarded within 10 s")
}

func partitionNumbers(t *trial) (found answer) {
	q := t.queue(func(p *admin.QueueProperties) { p.EnablePartitioning = to.Ptr(true) }) // Premium refuses it
	const n = 20
	ms := numbered(n)
	for i, m := range ms {
		m.PartitionKey = to.Ptr(fmt.Sprint("key-", i%4))
	}
	t.send(q, ms...)
	t.do(func() (err error) {
		found, err = t.comparePartitions(q, n)
		return err
	})
	return found
}

// comparePartitions peeks at n messages by their numbers.
func (t *trial) comparePartitions(q string, n int) (answer, error) {
	p, err := t.cfg.Links.Peeker(t.ctx, q)
	if err != nil {
		return answer{}, err
	}
	defer p.Close(t.ctx)
	last := map[int64]time.Time{}
	seen := 0
	for from := int64(0); seen < n; {
		t.operations++
		page, err := p.Peek(t.ctx, from, n)
		if err != nil {
			return answer{}, err
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			partition := m.SequenceNumber >> 48
			if m.EnqueuedTime.Before(last[partition]) {
				return otherwise("in partition %d, number %d was enqueued before a lower one", partition, m.SequenceNumber), nil
			}
			last[partition] = m.EnqueuedTime
			from = m.SequenceNumber + 1
			seen++
		}
	}
	return when(seen == n && len(last) > 1, "peeks by number showed %d of %d messages, in %d partitions", seen, n, len(last)), nil
}

func addresses(t *trial) (found answer) {
	q := t.prefix + "/with.dots/and_more"
	t.create(q, &admin.QueueProperties{AutoDeleteOnIdle: to.Ptr(idle)})
	t.do(func() error {
		if _, err := t.tryPeek(q, 1); err != nil {
			found = refused("a peek at a queue with slashes and dots in its name", err)
			return nil
		}
		_, err := t.tryPeek(t.prefix+"%2Fwith.dots%2Fand_more", 1)
		found = when(err != nil, "an address with escaped slashes led to the queue")
		return t.ctx.Err()
	})
	return found
}
