// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"testing"
	"time"
)

func TestUpdateAppliesToWhatComesAfter(t *testing.T) {
	alone(t, Config{LockDuration: time.Minute, Partitioned: true}, func(t *testing.T, q *Queue) {
		send(t, q, text("a"))
		c := q.NewConsumer(PeekLock)
		d := receive(c, 1)[0]
		must(t, q.Update(Config{
			LockDuration:             10 * time.Second,
			MaxDeliveryCount:         1,
			DefaultMessageTimeToLive: time.Hour,
		}))
		q.quota.SetLimit(2 * entryOverhead)
		if got, err := q.RenewLock(d.LockToken); err != nil || !got.Equal(time.Now().Add(10*time.Second)) {
			t.Errorf("RenewLock = %v, %v, want ten seconds", got, err)
		}
		if _, err := q.Send(text("too much")); !errors.Is(err, ErrFull) {
			t.Errorf("Send above the new size = %v, want ErrFull", err)
		}
		must(t, q.Abandon(d.LockToken))
		dead := q.DeadLetterQueue()
		dd := receive(dead.NewConsumer(PeekLock), 1)
		wantBodies(t, "dead-lettered by the new count", dd, "a")
		if got, want := dd[0].LockedUntil, time.Now().Add(10*time.Second); !got.Equal(want) {
			t.Errorf("locked in the dead-letter queue until %v, want %v", got, want)
		}
		if v := dd[0]; !v.ExpiresAt.IsZero() {
			t.Errorf("a message from before the update expires at %v, want never", v.ExpiresAt)
		}
		must(t, dead.Complete(dd[0].LockToken))
		send(t, q, text("b"))
		if v := seen(q.Peek(nil, 0, 1))[0]; v.TTL != time.Hour || !v.EntityTTL {
			t.Errorf("time to live after the update = %v, the entity's %v, want an hour, true", v.TTL, v.EntityTTL)
		}
		if got := q.Config(); !got.Partitioned || got.MaxDeliveryCount != 1 {
			t.Errorf("Config = %+v, want it partitioned, 1 delivery", got)
		}
	})
	q := New(Config{})
	q.Close()
	if err := q.Update(Config{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Update of a closed queue = %v, want ErrClosed", err)
	}
}

func TestUpdateOfTheWindowAppliesToWhatIsRemembered(t *testing.T) {
	alone(t, Config{RequiresDuplicateDetection: true}, func(t *testing.T, q *Queue) {
		send(t, q, named("x", "a"))
		time.Sleep(30 * time.Second)
		must(t, q.Update(Config{DuplicateDetectionHistoryTimeWindow: time.Second})) // raised to 20 s
		send(t, q, named("x", "b"))
		wantBodies(t, "peek", seen(q.Peek(nil, 0, 10)), "a", "b")
		if got := q.Config().DuplicateDetectionHistoryTimeWindow; got != MinDuplicateDetectionHistoryTimeWindow {
			t.Errorf("window = %v, want %v", got, MinDuplicateDetectionHistoryTimeWindow)
		}
	})
}

func TestQuotaIsShared(t *testing.T) {
	each := (&Message{Body: []byte("a")}).size()
	u := NewQuota(2 * each)
	a, c := setup(t, Config{Shared: u}, "a")
	b, _ := setup(t, Config{Shared: u}, "a")
	for _, q := range []*Queue{a, b} {
		if _, err := q.Send(text("x")); !errors.Is(err, ErrFull) {
			t.Errorf("Send with a full quota = %v, want ErrFull", err)
		}
	}
	must(t, a.DeadLetter(receive(c, 1)[0].LockToken, "", ""))
	if _, err := b.Send(text("x")); !errors.Is(err, ErrFull) {
		t.Errorf("Send with a dead letter elsewhere = %v, want ErrFull", err)
	}
	u.SetLimit(3 * each)
	send(t, b, text("x"))
	b.Close()
	if got := u.Used(); got != each || u.Limit() != 3*each {
		t.Errorf("bytes taken = %d of %d, want %d of %d", got, u.Limit(), each, 3*each)
	}
	send(t, a, text("y"), text("z"))
}
