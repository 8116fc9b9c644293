// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/servicebus/link"
)

func receiveExpiresAll(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, q, mortal("before"), live("live"), mortal("behind-1"), mortal("behind-2")); err != nil {
		return untold(err)
	}
	if err := t.untilOverdue(ctx, q); err != nil {
		return untold(err)
	}
	if _, err := t.nudge(ctx, q); err != nil {
		return untold(err)
	}
	left, dead, err := t.untilGone(ctx, q, 1, 3)
	if err != nil {
		return untold(err)
	}
	return when(slices.Equal(left, []string{"live"}) && len(dead) == 3,
		"of three overdue messages, one before and two behind a live one, %d were expired by one receive", len(dead))
}

func cleanupAtOnce(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	// The live message behind them answers the receive.
	if err := t.send(ctx, q, mortal("first"), mortal("second"), live("live")); err != nil {
		return untold(err)
	}
	left, err := t.clearAway(ctx, q, 3)
	if err != nil {
		return untold(err)
	}
	if len(left) == 1 {
		return asAssumed("")
	}
	began := time.Now()
	if left, _, err = t.untilGone(ctx, q, 1, 2); err != nil {
		return untold(err)
	}
	if len(left) > 1 {
		return untold(errNoLetter)
	}
	return otherwise("overdue messages left their queue %v after the receive was answered, or a little less", time.Since(began).Round(100*time.Millisecond))
}

// clearAway waits until messages are overdue, nudges, and returns what a peek shows at once: all n
// messages of the queue were shown before.
func (t *trial) clearAway(ctx context.Context, q string, n int) (left []string, err error) {
	if err := t.untilOverdue(ctx, q); err != nil {
		return nil, err
	}
	before, err := t.peek(ctx, q, n)
	if err != nil {
		return nil, err
	}
	if len(before) < n {
		return nil, errHidden
	}
	if _, err := t.nudge(ctx, q); err != nil {
		return nil, err
	}
	after, err := t.peek(ctx, q, n)
	return ids(after), err
}

// untilOverdue waits until messages are overdue. It fails if one is a dead letter already: then the
// receive that follows proves nothing.
func (t *trial) untilOverdue(ctx context.Context, q string) error {
	if err := wait(ctx, expired); err != nil {
		return err
	}
	dead, err := t.peek(ctx, q+deadLetters, 1)
	if err == nil && len(dead) > 0 {
		err = errAlone
	}
	return err
}

// untilGone peeks for a few seconds, until no more than n messages are left and buried are dead.
// Effects of a receive may take a moment.
func (t *trial) untilGone(ctx context.Context, q string, n, buried int) (left, dead []string, err error) {
	for range 3 {
		work, err := t.peek(ctx, q, 10)
		if err != nil {
			return nil, nil, err
		}
		letters, err := t.peek(ctx, q+deadLetters, 10)
		if err != nil {
			return nil, nil, err
		}
		left, dead = ids(work), ids(letters)
		if len(left) <= n && len(dead) >= buried {
			break
		}
		if err := wait(ctx, 2*time.Second); err != nil {
			return nil, nil, err
		}
	}
	return left, dead, nil
}

// idleWait is how long an overdue message is left alone. It is the longest wait of all trials.
const idleWait = time.Minute

func expiryIsLazy(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, q, mortal("overdue")); err != nil {
		return untold(err)
	}
	if err := wait(ctx, expired+idleWait); err != nil {
		return untold(err)
	}
	dead, err := t.peek(ctx, q+deadLetters, 1)
	if err != nil {
		return untold(err)
	}
	return when(len(dead) == 0, "it was in the dead-letter queue, and nobody had received")
}

func lockedDoesNotExpire(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, q, mortal("locked")); err != nil {
		return untold(err)
	}
	r, err := t.cfg.Client.NewReceiverForQueue(q, nil)
	if err != nil {
		return untold(err)
	}
	defer func() { _ = r.Close(context.WithoutCancel(ctx)) }() // the queue goes next
	receiving, cancel := context.WithTimeout(ctx, receiveWait)
	defer cancel()
	t.count(1)
	ms, err := r.ReceiveMessages(receiving, 1, nil)
	if err != nil {
		return untold(err)
	}
	if err := wait(ctx, expired); err != nil {
		return untold(err)
	}
	if _, err := t.nudge(ctx, q); err != nil {
		return untold(err)
	}
	dead, err := t.peek(ctx, q+deadLetters, 1)
	if err != nil {
		return untold(err)
	}
	if len(dead) > 0 {
		return otherwise("it was dead-lettered while a consumer had it")
	}
	t.count(1)
	if err := r.AbandonMessage(ctx, ms[0], nil); err != nil {
		return untold(err)
	}
	left, dead2, err := t.untilGone(ctx, q, 0, 1)
	if err != nil {
		return untold(err)
	}
	return when(len(left) == 0 && len(dead2) == 1, "after it was abandoned, %d were left and %d dead-lettered", len(left), len(dead2))
}

// expireOne sends a message, lets it expire, and nudges. before is what a peek showed of it in
// time.
func (t *trial) expireOne(ctx context.Context, q string) (before *link.Message, err error) {
	if err := t.send(ctx, q, mortal("overdue")); err != nil {
		return nil, err
	}
	page, err := t.peek(ctx, q, 1)
	if err != nil {
		return nil, err
	}
	if len(page) == 0 {
		return nil, errGone
	}
	if err := wait(ctx, expired); err != nil {
		return nil, err
	}
	_, err = t.nudge(ctx, q)
	return page[0], err
}

// letter peeks at the dead-letter queue until there is one.
func (t *trial) letter(ctx context.Context, q string) (*link.Message, error) {
	for range 5 {
		page, err := t.peek(ctx, q+deadLetters, 1)
		if err != nil {
			return nil, err
		}
		if len(page) > 0 {
			return page[0], nil
		}
		if err := wait(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	return nil, errNoLetter
}

func deadLetterNumber(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	// The second message has a number that a queue of its own would not give it.
	if err := t.send(ctx, q, live("first"), live("second"), live("third")); err != nil {
		return untold(err)
	}
	before, after, err := t.expireLast(ctx, q)
	if err != nil {
		return untold(err)
	}
	return when(before.SequenceNumber == after.SequenceNumber,
		"it had the number %d, and has %d as a dead letter", before.SequenceNumber, after.SequenceNumber)
}

// expireLast expires a message that is sent behind those of a queue.
func (t *trial) expireLast(ctx context.Context, q string) (before, after *link.Message, err error) {
	if err := t.send(ctx, q, mortal("overdue")); err != nil {
		return nil, nil, err
	}
	page, err := t.peek(ctx, q, 10)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(page, func(m *link.Message) bool { return m.MessageID == "overdue" })
	if i < 0 {
		return nil, nil, errGone
	}
	if err := wait(ctx, expired); err != nil {
		return nil, nil, err
	}
	// This receive reaches all messages, however many one reaches.
	err = t.receive(ctx, q, i, func(r *link.Receiver, ms []*link.ReceivedMessage) error {
		m, err := t.one(ctx, r)
		if m != nil {
			ms = append(ms, m)
		}
		return errors.Join(err, release(ctx, r, ms))
	})
	if err != nil {
		return nil, nil, err
	}
	after, err = t.letter(ctx, q)
	return page[i], after, err
}

func deadLetterStamp(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	before, err := t.expireOne(ctx, q)
	if err != nil {
		return untold(err)
	}
	after, err := t.letter(ctx, q)
	if err != nil {
		return untold(err)
	}
	return when(before.EnqueuedTime.Equal(after.EnqueuedTime), "the stamp of the dead letter is %v later", after.EnqueuedTime.Sub(before.EnqueuedTime))
}

func deadLetterAtOnce(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	// The live message behind it answers the receive.
	if err := t.send(ctx, q, mortal("overdue"), live("live")); err != nil {
		return untold(err)
	}
	left, err := t.clearAway(ctx, q, 2)
	if err != nil {
		return untold(err)
	}
	if len(left) > 1 {
		return answer{Unknown, "it left its queue only after the receive was answered"}
	}
	began := time.Now()
	page, err := t.peek(ctx, q+deadLetters, 1)
	if err != nil {
		return untold(err)
	}
	if len(page) > 0 {
		return asAssumed("")
	}
	if _, err := t.letter(ctx, q); err != nil {
		return untold(err)
	}
	return otherwise("it came %v after it had left its queue, or a little less", time.Since(began).Round(100*time.Millisecond))
}

func defaultCaps(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx, func(p *admin.QueueProperties) { p.DefaultMessageTimeToLive = to.Ptr("PT5S") })
	if err != nil {
		return untold(err)
	}
	long := live("long")
	long.TimeToLive = to.Ptr(time.Hour)
	if err := t.send(ctx, q, live("without"), long); err != nil {
		return untold(err)
	}
	if err := wait(ctx, 5*time.Second+expired-life); err != nil {
		return untold(err)
	}
	came, err := t.nudge(ctx, q)
	if err != nil {
		return untold(err)
	}
	_, dead, err := t.untilGone(ctx, q, 0, 2)
	if err != nil {
		return untold(err)
	}
	return when(came == "" && len(dead) == 2, "%d of two messages were expired 5 s after they were sent", len(dead))
}

func deferredStays(ctx context.Context, t *trial) answer {
	q, err := t.queue(ctx)
	if err != nil {
		return untold(err)
	}
	if err := t.send(ctx, q, mortal("deferred")); err != nil {
		return untold(err)
	}
	r, err := t.cfg.Client.NewReceiverForQueue(q, nil)
	if err != nil {
		return untold(err)
	}
	defer func() { _ = r.Close(context.WithoutCancel(ctx)) }() // the queue goes next
	receiving, cancel := context.WithTimeout(ctx, receiveWait)
	defer cancel()
	t.count(2)
	ms, err := r.ReceiveMessages(receiving, 1, nil)
	if err != nil {
		return untold(err)
	}
	if err := r.DeferMessage(ctx, ms[0], nil); err != nil {
		return untold(err)
	}
	if err := wait(ctx, expired); err != nil {
		return untold(err)
	}
	if _, err := t.nudge(ctx, q); err != nil {
		return untold(err)
	}
	dead, err := t.peek(ctx, q+deadLetters, 1)
	if err != nil {
		return untold(err)
	}
	if len(dead) > 0 {
		return otherwise("a receive expired it")
	}
	t.count(1)
	again, err := r.ReceiveDeferredMessages(ctx, []int64{*ms[0].SequenceNumber}, nil)
	if err == nil && len(again) > 0 {
		return otherwise("it could be received after its time to live")
	}
	if _, err := t.letter(ctx, q); err != nil {
		return otherwise("it could not be received, and did not come to the dead-letter queue")
	}
	return asAssumed("")
}
