// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestBatchIsStoredWholeOrNotAtAll(t *testing.T) {
	const each = entryOverhead + 1
	q, c := setup(t, Config{Shared: NewQuota(3 * each)}, "a", "b")
	if _, err := q.Send(text("c"), text("d")); !errors.Is(err, ErrFull) {
		t.Fatalf("Send of two with room for one = %v, want ErrFull", err)
	}
	first := send(t, q, text("c"))
	if first != 3 {
		t.Errorf("sequence number after a refused batch = %d, want 3", first)
	}
	// A dead-lettered message still takes its room, also under its reason.
	must(t, q.DeadLetter(receive(c, 1)[0].LockToken, "r", ""))
	if _, err := q.Send(text("d")); !errors.Is(err, ErrFull) {
		t.Errorf("Send with a full dead-letter queue = %v, want ErrFull", err)
	}
	if got, want := q.Counts().Size, int64(3*each+1); got != want {
		t.Errorf("Size = %d, want %d", got, want)
	}
	dead := q.DeadLetterQueue()
	must(t, dead.Complete(receive(dead.NewConsumer(PeekLock), 1)[0].LockToken))
	send(t, q, text("d"))
}

func TestTimeToLiveIsCappedAndStartsAtActivation(t *testing.T) {
	alone(t, Config{DefaultMessageTimeToLive: time.Hour, Expiry: Eager}, func(t *testing.T, q *Queue) {
		now := time.Now()
		send(t, q, Message{}, Message{TTL: time.Minute}, Message{TTL: 2 * time.Hour},
			Message{TTL: time.Minute, ScheduledEnqueueTime: now.Add(30 * time.Minute)})
		var got []time.Duration
		for _, v := range seen(q.Peek(nil, 0, 3)) {
			got = append(got, v.ExpiresAt.Sub(v.EnqueuedTime))
		}
		if want := []time.Duration{time.Hour, time.Minute, time.Hour}; !slices.Equal(got, want) {
			t.Errorf("times to live of none, less and more than the cap = %v, want %v", got, want)
		}
		v := seen(q.Peek(nil, 4, 1))[0]
		if v.State != Scheduled || !v.EnqueuedTime.Equal(now) || !v.ExpiresAt.IsZero() {
			t.Errorf("scheduled: %+v, want enqueued when sent and without expiry", v)
		}
		time.Sleep(30*time.Minute + 30*time.Second)
		v = seen(q.Peek(nil, 5, 1))[0]
		if at := now.Add(30 * time.Minute); v.State != Active || !v.EnqueuedTime.Equal(at) ||
			!v.ExpiresAt.Equal(at.Add(time.Minute)) || !v.ScheduledEnqueueTime.Equal(at) {
			t.Errorf("activated: %+v, want enqueued at %v and a minute to live", v, at)
		}
	})
}

func TestActivationGivesANewSequenceNumber(t *testing.T) {
	alone(t, Config{}, func(t *testing.T, q *Queue) {
		at := time.Now().Add(time.Minute)
		seqs, err := q.Schedule(Message{Body: []byte("a"), ScheduledEnqueueTime: at},
			Message{Body: []byte("b"), ScheduledEnqueueTime: at}, Message{Body: []byte("c"), ScheduledEnqueueTime: at})
		must(t, err)
		send(t, q, text("d"))
		must(t, q.CancelScheduled(seqs[1]))
		if err := q.CancelScheduled(seqs[0], seqs[1]); !errors.Is(err, ErrMessageNotFound) {
			t.Errorf("CancelScheduled of one that is gone = %v, want ErrMessageNotFound", err)
		}
		wantBodies(t, "peek before", seen(q.Peek(nil, 0, 10)), "a", "c", "d")
		time.Sleep(time.Minute)
		if err := q.CancelScheduled(seqs[0]); !errors.Is(err, ErrMessageNotFound) {
			t.Errorf("CancelScheduled after activation = %v, want ErrMessageNotFound", err)
		}
		vs := seen(q.Peek(nil, 0, 10))
		wantBodies(t, "peek after", vs, "d", "a", "c")
		if got := []int64{vs[0].SequenceNumber, vs[1].SequenceNumber, vs[2].SequenceNumber}; !slices.Equal(got, []int64{4, 5, 6}) {
			t.Errorf("sequence numbers = %d, want 4, 5, 6", got)
		}
	})
}

func TestTimesFarAwayAreKept(t *testing.T) {
	q, _ := setup(t, Config{})
	far := time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)
	send(t, q, Message{ScheduledEnqueueTime: far, TTL: 1<<63 - 1},
		Message{ScheduledEnqueueTime: time.Unix(1<<60, 0)}, Message{ScheduledEnqueueTime: time.Unix(-1<<60, 0), TTL: 1<<63 - 1})
	vs := seen(q.Peek(nil, 0, 10))
	if !vs[0].ScheduledEnqueueTime.Equal(far) || vs[0].State != Scheduled {
		t.Errorf("scheduled for %v, state %d, want %v", vs[0].ScheduledEnqueueTime, vs[0].State, far)
	}
	if vs[1].State != Scheduled || vs[2].State != Active {
		t.Errorf("states of the far future and the far past = %d, %d, want scheduled, active", vs[1].State, vs[2].State)
	}
}

func TestClosedQueueRefuses(t *testing.T) {
	q, c := setup(t, Config{}, "a", "b")
	d := receive(c, 1)[0]
	q.Close()
	q.Close()
	for range c.Ready() { // ends
	}
	_, sendErr := q.Send(text("x"))
	_, deferredErr := q.ReceiveDeferred(PeekLock, 1)
	_, renewErr := q.RenewLock(d.LockToken)
	for name, err := range map[string]error{
		"Send": sendErr, "ReceiveDeferred": deferredErr, "RenewLock": renewErr,
		"Complete": q.Complete(d.LockToken), "CancelScheduled": q.CancelScheduled(1),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", name, err)
		}
	}
	if got := q.Counts(); got != (Counts{}) {
		t.Errorf("Counts = %+v, want none", got)
	}
	if vs := seen(q.Peek(nil, 0, 10)); len(vs) != 0 {
		t.Errorf("Peek = %q, want nothing", bodies(vs))
	}
	late := q.NewConsumer(PeekLock)
	late.AddCredit(1)
	late.SetCredit(1)
	late.Drain()
	if ds, drained, _ := late.Take(nil); len(ds) != 0 || drained {
		t.Errorf("Take = %d deliveries, drained %v, want nothing", len(ds), drained)
	}
	late.Close()
}
