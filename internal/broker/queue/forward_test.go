// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestForwardedMessageBringsItsPastAlong(t *testing.T) {
	q, c := setup(t, Config{})
	m := Message{
		Body:                       []byte("a"),
		MessageID:                  "id",
		EnqueuedSequenceNumber:     42,
		Hops:                       2,
		DeadLetterReason:           "why",
		DeadLetterErrorDescription: "because",
		DeadLetterSource:           "orders",
		Properties:                 []Property{{"x", int32(1)}},
	}
	send(t, q, m)
	d := receive(c, 1)[0]
	if diff := gocmp.Diff(m, d.Message); diff != "" {
		t.Errorf("received: -want +got:\n%s", diff)
	}
	must(t, q.Abandon(d.LockToken, Property{"y", "2"}))
	d = receive(c, 1)[0]
	want := []Property{{"x", int32(1)}, {"y", "2"}}
	if diff := gocmp.Diff(want, d.Properties); diff != "" || d.Hops != 2 || d.EnqueuedSequenceNumber != 42 {
		t.Errorf("after abandon: %d hops, first number %d, properties: -want +got:\n%s", d.Hops, d.EnqueuedSequenceNumber, diff)
	}
	must(t, q.DeadLetter(d.LockToken, "new", ""))
	v := q.DeadLetterQueue().Peek(nil, 0, 1)[0]
	if v.DeadLetterReason != "new" || v.DeadLetterErrorDescription != "" || v.DeadLetterSource != "orders" || v.Hops != 2 {
		t.Errorf("dead-lettered once more: %+v", v)
	}
	if got, want := q.quota.Used(), q.Counts().Size; got != want {
		t.Errorf("bytes taken = %d, want %d", got, want)
	}
}

func TestTransferDeadLetterQueueIsADeadLetterQueue(t *testing.T) {
	q, c := setup(t, Config{MaxDeliveryCount: 1, DefaultMessageTimeToLive: time.Hour}, "a", "b")
	if got := q.Counts(); got.TransferDeadLetter != 0 {
		t.Errorf("Counts = %+v, want no transfer dead letters", got)
	}
	ds := receive(c, 2)
	if errs := q.Settle(Settlement{Outcome: TransferDeadLetter, DeadLetterReason: "r", DeadLetterErrorDescription: "d"},
		ds[1].LockToken, ds[0].LockToken); errs != nil {
		t.Fatalf("Settle = %v", errs)
	}
	tq := q.TransferDeadLetterQueue()
	vs := tq.Peek(nil, 0, 10)
	wantBodies(t, "transfer dead-letter queue", vs, "a", "b")
	if v := vs[0]; v.SequenceNumber != ds[0].SequenceNumber || v.DeadLetterReason != "r" || v.DeadLetteredTime.IsZero() {
		t.Errorf("in the transfer dead-letter queue: %+v, was %+v", v, ds[0].View)
	}
	if got := q.Counts(); got.TransferDeadLetter != 2 || got.DeadLetter != 0 || got.Active != 0 || got.Size == 0 {
		t.Errorf("Counts = %+v, want 2 transfer dead letters", got)
	}
	d := receive(tq.NewConsumer(PeekLock), 1)[0]
	errs := tq.Settle(Settlement{Outcome: TransferDeadLetter}, d.LockToken)
	if errs == nil || !errors.Is(errs[0], ErrDeadLetterQueue) {
		t.Errorf("transfer dead-letter there = %v, want ErrDeadLetterQueue", errs)
	}
	must(t, tq.Abandon(d.LockToken))
	if tq.TransferDeadLetterQueue() != nil || q.DeadLetterQueue().TransferDeadLetterQueue() != nil {
		t.Error("a dead-letter queue has a transfer dead-letter queue, want none")
	}
	q.Close()
	if got := tq.Counts(); got != (Counts{}) || q.quota.Used() != 0 {
		t.Errorf("after Close: Counts = %+v, %d bytes taken, want none", got, q.quota.Used())
	}
	closed := New(Config{})
	closed.Close()
	if got := closed.TransferDeadLetterQueue().Peek(nil, 0, 1); len(got) != 0 {
		t.Errorf("transfer dead-letter queue of a closed queue has %d messages, want none", len(got))
	}
}
