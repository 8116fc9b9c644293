// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// setup is a queue with these messages and a peek-lock consumer without credit.
func setup(t *testing.T, cfg Config, texts ...string) (*Queue, *Consumer) {
	t.Helper()
	q := New(cfg)
	t.Cleanup(q.Close)
	for _, s := range texts {
		send(t, q, text(s))
	}
	return q, q.NewConsumer(PeekLock)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantBodies[T interface{ text() string }](t *testing.T, what string, got []T, want ...string) {
	t.Helper()
	if !slices.Equal(bodies(got), want) {
		t.Fatalf("%s = %q, want %q", what, bodies(got), want)
	}
}

func TestMessagesReturnToTheirOriginalPlace(t *testing.T) {
	q, c := setup(t, Config{}, "a", "b", "c", "d")
	ds := receive(c, 3)
	wantBodies(t, "received", ds, "a", "b", "c")
	must(t, q.Release(ds[1].LockToken))
	must(t, q.Abandon(ds[0].LockToken))
	again := drain(t, c, 10)
	wantBodies(t, "received again", again, "a", "b", "d")
	got := []int{again[0].DeliveryCount, again[1].DeliveryCount, again[2].DeliveryCount}
	if want := []int{1, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("delivery counts after abandon, release, nothing = %v, want %v", got, want)
	}
}

func TestTooManyFailedDeliveriesDeadLetter(t *testing.T) {
	q, c := setup(t, Config{MaxDeliveryCount: 2}, "a")
	for range 2 {
		must(t, q.Abandon(receive(c, 1)[0].LockToken))
	}
	vs := seen(q.DeadLetterQueue().Peek(nil, 0, 10))
	wantBodies(t, "dead-letter queue", vs, "a")
	v := vs[0]
	if v.DeadLetterReason != "MaxDeliveryCountExceeded" || v.DeliveryCount != 2 ||
		v.DeadLetterErrorDescription != "Message could not be consumed after 2 delivery attempts." {
		t.Errorf("dead-lettered after two abandons: %+v", v)
	}
}

func TestSettlementsSetProperties(t *testing.T) {
	q, c := setup(t, Config{}, "a")
	must(t, q.Abandon(receive(c, 1)[0].LockToken, Property{"x", "1"}, Property{"y", int32(2)}))
	d := receive(c, 1)[0]
	must(t, q.DeadLetter(d.LockToken, "why", "because", Property{"x", true}, Property{"z", nil}))
	want := []Property{{"x", "1"}, {"y", int32(2)}}
	if diff := gocmp.Diff(want, d.Properties); diff != "" {
		t.Errorf("after abandon, and unchanged by what came later: -want +got:\n%s", diff)
	}
	v := seen(q.DeadLetterQueue().Peek(nil, 0, 1))[0]
	want = []Property{{"x", true}, {"y", int32(2)}, {"z", nil}}
	if diff := gocmp.Diff(want, v.Properties); diff != "" {
		t.Errorf("after dead-letter: -want +got:\n%s", diff)
	}
	if v.DeadLetterReason != "why" || v.DeadLetterErrorDescription != "because" || v.DeadLetterSource != "" {
		t.Errorf("dead-lettered as %q, %q from %q", v.DeadLetterReason, v.DeadLetterErrorDescription, v.DeadLetterSource)
	}
}

func TestPropertiesOfOneMessageAreBounded(t *testing.T) {
	q, c := setup(t, Config{}, "a")
	d := receive(c, 1)[0]
	long := strings.Repeat("x", MaxPropertiesSize)
	if err := q.Abandon(d.LockToken, Property{"k", long}); !errors.Is(err, ErrPropertiesTooLarge) {
		t.Errorf("Abandon with too much = %v, want ErrPropertiesTooLarge", err)
	}
	if err := q.DeadLetter(d.LockToken, long, "x"); !errors.Is(err, ErrPropertiesTooLarge) {
		t.Errorf("DeadLetter with too much = %v, want ErrPropertiesTooLarge", err)
	}
	// Neither cost the lock, and replacing a value does not add up.
	half := Property{"k", []byte(long[:MaxPropertiesSize/2])}
	for range 5 {
		must(t, q.Defer(d.LockToken, half))
		ds, err := q.ReceiveDeferred(PeekLock, d.SequenceNumber)
		must(t, err)
		d = ds[0]
	}
	if err := q.Defer(d.LockToken, Property{"other", half.Value}); !errors.Is(err, ErrPropertiesTooLarge) {
		t.Errorf("Defer with another half = %v, want ErrPropertiesTooLarge", err)
	}
}

func TestDeadLetterQueueKeepsWhatAMessageWas(t *testing.T) {
	q, c := setup(t, Config{MaxDeliveryCount: 2}, "a", "b")
	must(t, q.Abandon(receive(c, 1)[0].LockToken))
	ds := receive(c, 2)
	// The later one dies first: a peek is in sequence order all the same.
	must(t, q.DeadLetter(ds[1].LockToken, "r", "d"))
	must(t, q.DeadLetter(ds[0].LockToken, "r", "d"))
	dead := q.DeadLetterQueue()
	vs := seen(dead.Peek(nil, 0, 10))
	wantBodies(t, "peek", vs, "a", "b")
	wantBodies(t, "peek from the second", seen(dead.Peek(nil, vs[1].SequenceNumber, 10)), "b")
	if v := vs[0]; v.SequenceNumber != ds[0].SequenceNumber || !v.EnqueuedTime.Equal(ds[0].EnqueuedTime) ||
		v.DeliveryCount != 1 || v.DeadLetteredTime.IsZero() {
		t.Errorf("dead-lettered: %+v, was %+v", v, ds[0].View)
	}

	dc := dead.NewConsumer(PeekLock)
	for range 5 {
		must(t, dead.Abandon(receive(dc, 1)[0].LockToken))
	}
	d := receive(dc, 1)[0]
	if d.DeliveryCount != 1 {
		t.Errorf("delivery count after abandons in the dead-letter queue = %d, want 1", d.DeliveryCount)
	}
	if err := dead.DeadLetter(d.LockToken, "r", "d"); !errors.Is(err, ErrDeadLetterQueue) {
		t.Errorf("DeadLetter there = %v, want ErrDeadLetterQueue", err)
	}
	if _, err := dead.Send(text("x")); !errors.Is(err, ErrDeadLetterQueue) {
		t.Errorf("Send there = %v, want ErrDeadLetterQueue", err)
	}
	must(t, dead.Complete(d.LockToken))
	if got := q.Counts(); got.DeadLetter != 1 || got.Active != 0 {
		t.Errorf("Counts = %+v, want 1 dead-lettered", got)
	}
}

func TestADeferAtMaxDeliveryCountDeadLetters(t *testing.T) {
	q, c := setup(t, Config{MaxDeliveryCount: 2}, "a")
	must(t, q.Defer(receive(c, 1)[0].LockToken))
	ds, err := q.ReceiveDeferred(PeekLock, 1)
	must(t, err)
	must(t, q.Defer(ds[0].LockToken, Property{"k", "v"}))
	if got := q.Counts(); got.Deferred != 0 || got.DeadLetter != 1 {
		t.Fatalf("counts = %+v, want one dead letter", got)
	}
	v := seen(q.DeadLetterQueue().Peek(nil, 0, 1))[0]
	if v.DeadLetterReason != "MaxDeliveryCountExceeded" || v.DeliveryCount != 2 || v.State != Active || len(v.Properties) != 1 {
		t.Errorf("dead letter: %+v, want MaxDeliveryCountExceeded after 2 deliveries, active, with its property", v)
	}
}

func TestDeferredMessageIsReceivedByNumberOnly(t *testing.T) {
	q, c := setup(t, Config{}, "a", "b")
	d := receive(c, 1)[0]
	must(t, q.Defer(d.LockToken))
	wantBodies(t, "received", drain(t, c, 10), "b")
	if got := q.Counts(); got.Deferred != 1 || got.Active != 1 {
		t.Errorf("Counts = %+v, want 1 deferred, 1 active", got)
	}
	ds, err := q.ReceiveDeferred(PeekLock, d.SequenceNumber)
	must(t, err)
	if ds[0].State != Deferred || ds[0].DeliveryCount != 1 {
		t.Errorf("received: state %d, delivery count %d, want deferred, 1", ds[0].State, ds[0].DeliveryCount)
	}
	if _, err := q.ReceiveDeferred(PeekLock, d.SequenceNumber); !errors.Is(err, ErrMessageNotFound) {
		t.Errorf("ReceiveDeferred of a locked one = %v, want ErrMessageNotFound", err)
	}
	must(t, q.Abandon(ds[0].LockToken))
	v := seen(q.Peek(nil, 0, 1))[0]
	if v.State != Deferred || v.DeliveryCount != 2 {
		t.Errorf("abandoned: state %d, delivery count %d, want deferred, 2", v.State, v.DeliveryCount)
	}
}

func TestReceiveDeferredIsAllOrNothing(t *testing.T) {
	q, c := setup(t, Config{}, "a", "b", "c")
	ds := receive(c, 3)
	must(t, q.Defer(ds[0].LockToken))
	must(t, q.Defer(ds[1].LockToken))
	for name, numbers := range map[string][]int64{
		"active": {1, 2, 3}, "unknown": {1, 99}, "twice": {1, 2, 1},
	} {
		if _, err := q.ReceiveDeferred(PeekLock, numbers...); !errors.Is(err, ErrMessageNotFound) {
			t.Errorf("%s: ReceiveDeferred(%d) = %v, want ErrMessageNotFound", name, numbers, err)
		}
	}
	ds, err := q.ReceiveDeferred(ReceiveAndDelete, 2, 1)
	must(t, err)
	wantBodies(t, "received", ds, "b", "a")
	if got := q.Counts(); got.Deferred != 0 || ds[0].DeliveryCount != 1 {
		t.Errorf("Counts = %+v and delivery count %d, want none deferred and one delivery: failures cost nothing",
			got, ds[0].DeliveryCount)
	}
}

func TestExpiredDeferredMessageIsNoticedWhenAskedFor(t *testing.T) {
	alone(t, Config{Expiry: Eager, DeadLetteringOnMessageExpiration: true}, func(t *testing.T, q *Queue) {
		send(t, q, Message{Body: []byte("a"), TTL: time.Second}, text("b"))
		c := q.NewConsumer(PeekLock)
		for _, d := range receive(c, 2) {
			must(t, q.Defer(d.LockToken))
		}
		time.Sleep(time.Hour)
		wantBodies(t, "peek an hour later", seen(q.Peek(nil, 0, 10)), "a", "b")
		if _, err := q.ReceiveDeferred(PeekLock, 2, 1); !errors.Is(err, ErrMessageNotFound) {
			t.Errorf("ReceiveDeferred of an expired one = %v, want ErrMessageNotFound", err)
		}
		wantBodies(t, "queue", seen(q.Peek(nil, 0, 10)), "b")
		wantBodies(t, "dead-letter queue", seen(q.DeadLetterQueue().Peek(nil, 0, 10)), "a")
	})
}
