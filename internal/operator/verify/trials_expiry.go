// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/servicebus/link"
)

func receiveExpiresAll(t *trial) answer {
	q := t.queue()
	t.send(q, mortal("before"), live("live"), mortal("behind-1"), mortal("behind-2"))
	t.untilOverdue(q)
	t.nudge(q)
	left, dead := t.untilGone(q, 1, 3)
	return when(slices.Equal(left, []string{"live"}) && len(dead) == 3,
		"of three overdue messages, one before and two behind a live one, %d were expired by one receive", len(dead))
}

func cleanupAtOnce(t *trial) answer {
	q := t.queue()
	// The live message behind them answers the receive.
	t.send(q, mortal("first"), mortal("second"), live("live"))
	if left := t.clearAway(q, 3); len(left) == 1 {
		return asAssumed("")
	}
	began := time.Now()
	if left, _ := t.untilGone(q, 1, 2); len(left) > 1 {
		return unclear(string(errNoLetter))
	}
	return otherwise("overdue messages left their queue %v after the receive was answered, or a little less", time.Since(began).Round(100*time.Millisecond))
}

// clearAway waits until messages are overdue, nudges, and returns what a peek shows at once: all n
// messages of the queue were shown before.
func (t *trial) clearAway(q string, n int) (left []string) {
	t.untilOverdue(q)
	before := t.peek(q, n)
	t.do(func() error {
		if len(before) < n {
			return errHidden
		}
		return nil
	})
	t.nudge(q)
	return ids(t.peek(q, n))
}

// untilOverdue waits until messages are overdue. It fails if one is a dead letter already: then the
// receive that follows proves nothing.
func (t *trial) untilOverdue(q string) {
	t.wait(expired)
	if dead := t.peek(q+deadLetters, 1); len(dead) > 0 {
		t.err = errAlone
	}
}

// untilGone peeks for a few seconds, until no more than n messages are left and buried are dead.
// Effects of a receive may take a moment.
func (t *trial) untilGone(q string, n, buried int) (left, dead []string) {
	for range 3 {
		left, dead = ids(t.peek(q, 10)), ids(t.peek(q+deadLetters, 10))
		if len(left) <= n && len(dead) >= buried {
			break
		}
		t.wait(2 * time.Second)
	}
	return left, dead
}

// idleWait is how long an overdue message is left alone. It is the longest wait of all trials.
const idleWait = time.Minute

func expiryIsLazy(t *trial) answer {
	q := t.queue()
	t.send(q, mortal("overdue"))
	t.wait(expired + idleWait)
	return when(len(t.peek(q+deadLetters, 1)) == 0, "it was in the dead-letter queue, and nobody had received")
}

func lockedDoesNotExpire(t *trial) answer {
	q := t.queue()
	t.send(q, mortal("locked"))
	r, m := t.lock(q)
	t.wait(expired)
	t.nudge(q)
	if len(t.peek(q+deadLetters, 1)) > 0 {
		return otherwise("it was dead-lettered while a consumer had it")
	}
	t.do(func() error {
		t.operations++
		return r.AbandonMessage(t.ctx, m, nil)
	})
	left, dead := t.untilGone(q, 0, 1)
	return when(len(left) == 0 && len(dead) == 1, "after it was abandoned, %d were left and %d dead-lettered", len(left), len(dead))
}

// letter peeks at the dead-letter queue until there is one; nil: none came.
func (t *trial) letter(q string) *link.Message {
	for range 5 {
		if page := t.peek(q+deadLetters, 1); len(page) > 0 {
			return page[0]
		}
		t.wait(time.Second)
	}
	return nil
}

// buried is letter for a message that has to come. It is never nil.
func (t *trial) buried(q string) *link.Message {
	if m := t.letter(q); m != nil {
		return m
	}
	t.do(func() error { return errNoLetter })
	return &link.Message{}
}

func deadLetterNumber(t *trial) answer {
	q := t.queue()
	// The second message has a number that a queue of its own would not give it.
	t.send(q, live("first"), live("second"), live("third"))
	before, after := t.expireLast(q)
	return when(before.SequenceNumber == after.SequenceNumber,
		"it had the number %d, and has %d as a dead letter", before.SequenceNumber, after.SequenceNumber)
}

// expireLast expires a message that is sent behind those of a queue. It returns what a peek shows
// of it in time, and of its dead letter.
func (t *trial) expireLast(q string) (before, after *link.Message) {
	t.send(q, mortal("overdue"))
	page := t.peek(q, 10)
	i := slices.IndexFunc(page, func(m *link.Message) bool { return m.MessageID == "overdue" })
	if i < 0 {
		t.do(func() error { return errGone })
		return &link.Message{}, &link.Message{}
	}
	t.wait(expired)
	// This receive reaches all messages, however many one reaches.
	t.receive(q, i, func(r *link.Receiver, ms []*link.ReceivedMessage) error {
		m, err := t.one(r)
		if m != nil {
			ms = append(ms, m)
		}
		return errors.Join(err, t.release(r, ms))
	})
	return page[i], t.buried(q)
}

func deadLetterStamp(t *trial) answer {
	before, after := t.expireLast(t.queue())
	return when(before.EnqueuedTime.Equal(after.EnqueuedTime), "the stamp of the dead letter is %v later", after.EnqueuedTime.Sub(before.EnqueuedTime))
}

func deadLetterAtOnce(t *trial) answer {
	q := t.queue()
	// The live message behind it answers the receive.
	t.send(q, mortal("overdue"), live("live"))
	if left := t.clearAway(q, 2); len(left) > 1 {
		return unclear("it left its queue only after the receive was answered")
	}
	began := time.Now()
	if len(t.peek(q+deadLetters, 1)) > 0 {
		return asAssumed("")
	}
	t.buried(q)
	return otherwise("it came %v after it had left its queue, or a little less", time.Since(began).Round(100*time.Millisecond))
}

func defaultCaps(t *trial) answer {
	q := t.queue(func(p *admin.QueueProperties) { p.DefaultMessageTimeToLive = to.Ptr("PT5S") })
	long := live("long")
	long.TimeToLive = to.Ptr(time.Hour)
	t.send(q, live("without"), long)
	t.wait(5*time.Second + expired - life)
	came := t.nudge(q)
	_, dead := t.untilGone(q, 0, 2)
	return when(came == "" && len(dead) == 2, "%d of two messages were expired 5 s after they were sent", len(dead))
}

func deferredStays(t *trial) answer {
	q := t.queue()
	t.send(q, mortal("deferred"))
	r, m := t.lock(q)
	t.do(func() error {
		t.operations++
		return r.DeferMessage(t.ctx, m, nil)
	})
	t.wait(expired)
	t.nudge(q)
	if len(t.peek(q+deadLetters, 1)) > 0 {
		return otherwise("a receive expired it")
	}
	received := false
	t.do(func() error {
		t.operations++
		again, err := r.ReceiveDeferredMessages(t.ctx, []int64{*m.SequenceNumber}, nil)
		received = err == nil && len(again) > 0
		return nil // it is refused, as it should be
	})
	if received {
		return otherwise("it could be received after its time to live")
	}
	return when(t.letter(q) != nil, "it could not be received, and did not come to the dead-letter queue")
}
