// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// arrivals takes from c as the deliveries come and notes when, until c is closed. The queue is not
// touched by anybody else, so only its timer can have caused them.
func arrivals(c *Consumer) *[]time.Duration {
	start := time.Now()
	at := new([]time.Duration)
	go func() {
		for range c.Ready() {
			ds, _, _ := c.Take(nil)
			for range ds {
				*at = append(*at, time.Since(start))
			}
		}
	}()
	return at
}

// alone runs f in a bubble with a queue, and closes the queue.
func alone(t *testing.T, cfg Config, f func(t *testing.T, q *Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := New(cfg)
		f(t, q)
		q.Close()
		synctest.Wait()
	})
}

func wantTimes(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s after %v, want %v", what, got, want)
	}
}

func TestTimerActivatesScheduledMessagesAtTheirTime(t *testing.T) {
	alone(t, Config{}, func(t *testing.T, q *Queue) {
		c := q.NewConsumer(ReceiveAndDelete)
		c.AddCredit(10)
		at := arrivals(c)
		now := time.Now()
		for _, in := range []time.Duration{3 * time.Hour, time.Second, 1500 * time.Microsecond, time.Second} {
			send(t, q, Message{ScheduledEnqueueTime: now.Add(in)})
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		wantTimes(t, "activated", *at, 1500*time.Microsecond, time.Second, time.Second, 3*time.Hour)
	})
}

func TestTimerEndsLocks(t *testing.T) {
	alone(t, Config{LockDuration: 30 * time.Second, MaxDeliveryCount: 3}, func(t *testing.T, q *Queue) {
		dead := q.DeadLetterQueue().NewConsumer(PeekLock)
		dead.AddCredit(1)
		died := arrivals(dead)
		c := q.NewConsumer(PeekLock)
		c.AddCredit(10)
		at := arrivals(c)
		send(t, q, text("a"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		wantTimes(t, "delivered", *at, 0, 30*time.Second, time.Minute)
		wantTimes(t, "dead-lettered", *died, 90*time.Second)
	})
}

func TestEagerQueueExpiresByItsTimerAndLazyOnesDoNot(t *testing.T) {
	for _, expiry := range []Expiry{Lazy, LazyHead, Eager} {
		cfg := Config{Expiry: expiry, DeadLetteringOnMessageExpiration: true}
		alone(t, cfg, func(t *testing.T, q *Queue) {
			dead := q.DeadLetterQueue().NewConsumer(PeekLock)
			dead.AddCredit(10)
			died := arrivals(dead)
			send(t, q, Message{TTL: 10 * time.Second}, Message{TTL: 7 * time.Second}, Message{})
			time.Sleep(59 * time.Second)
			synctest.Wait()
			if expiry == Eager {
				wantTimes(t, "dead-lettered", *died, 7*time.Second, 10*time.Second)
				return
			}
			wantTimes(t, "dead-lettered by nobody", *died)
			if got := q.Counts().Active; got != 3 {
				t.Errorf("active with two expired, expiry %d = %d, want 3", expiry, got)
			}
			if got := len(seen(q.Peek(nil, 0, 10))); got != 3 {
				t.Errorf("peek with two expired, expiry %d = %d messages, want 3", expiry, got)
			}
			// One credit: the receive finds the two expired before it finds the live one.
			c := q.NewConsumer(PeekLock)
			if ds := receive(c, 1); len(ds) != 1 || ds[0].SequenceNumber != 3 {
				t.Errorf("received %v, want message 3", ds)
			}
			synctest.Wait()
			wantTimes(t, "dead-lettered", *died, 59*time.Second, 59*time.Second)
		})
	}
}

func TestLazyHeadLeavesTheExpiredBehindTheFirstLiveMessage(t *testing.T) {
	for expiry, want := range map[Expiry][]int64{Lazy: {1, 3}, LazyHead: {1}} {
		alone(t, Config{Expiry: expiry, DeadLetteringOnMessageExpiration: true}, func(t *testing.T, q *Queue) {
			send(t, q, Message{TTL: time.Second}, Message{}, Message{TTL: time.Second})
			time.Sleep(time.Second)
			c := q.NewConsumer(PeekLock)
			if ds := receive(c, 1); len(ds) != 1 || ds[0].SequenceNumber != 2 {
				t.Fatalf("received %v, want message 2", ds)
			}
			var got []int64
			for _, v := range seen(q.DeadLetterQueue().Peek(nil, 0, 10)) {
				got = append(got, v.SequenceNumber)
			}
			if !slices.Equal(got, want) {
				t.Errorf("expiry %d dead-lettered %v, want %v", expiry, got, want)
			}
		})
	}
}

func TestLockOutlivesTheTimeToLive(t *testing.T) {
	ends := map[string]func(q *Queue, d LockToken) error{
		"abandon": func(q *Queue, d LockToken) error { return q.Abandon(d) },
		"release": func(q *Queue, d LockToken) error { return q.Release(d) },
		"lapse":   func(*Queue, LockToken) error { time.Sleep(time.Minute); return nil },
	}
	for name, end := range ends {
		cfg := Config{LockDuration: time.Minute, Expiry: Eager, DeadLetteringOnMessageExpiration: true}
		alone(t, cfg, func(t *testing.T, q *Queue) {
			send(t, q, Message{TTL: 10 * time.Second}, Message{TTL: 10 * time.Second})
			c := q.NewConsumer(PeekLock)
			ds := receive(c, 2)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if got := q.Counts(); got.Active != 2 || got.DeadLetter != 0 {
				t.Fatalf("%s: while locked: %+v, want 2 active", name, got)
			}
			if err := q.Complete(ds[0].LockToken); err != nil {
				t.Errorf("%s: Complete after nominal expiry = %v", name, err)
			}
			if err := end(q, ds[1].LockToken); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			synctest.Wait()
			vs := seen(q.DeadLetterQueue().Peek(nil, 0, 10))
			if len(vs) != 1 || vs[0].DeadLetterReason != "TTLExpiredException" {
				t.Errorf("%s: dead-letter queue holds %+v, want the expired message", name, vs)
			}
		})
	}
}

func TestRenewedLockHoldsFromTheRenewal(t *testing.T) {
	alone(t, Config{LockDuration: time.Minute}, func(t *testing.T, q *Queue) {
		send(t, q, text("a"))
		d := receive(q.NewConsumer(PeekLock), 1)[0]
		time.Sleep(59 * time.Second)
		until, err := q.RenewLock(d.LockToken)
		if want := time.Now().Add(time.Minute); err != nil || !until.Equal(want) {
			t.Fatalf("RenewLock = %v, %v, want %v", until, err, want)
		}
		time.Sleep(time.Minute - time.Microsecond)
		if _, err := q.RenewLock(d.LockToken); err != nil {
			t.Fatalf("RenewLock a microsecond before the end = %v", err)
		}
		time.Sleep(time.Minute)
		// No synctest.Wait: whether the timer has run already must not matter.
		if err := q.Complete(d.LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("Complete at the end of the lock = %v, want ErrLockLost", err)
		}
		if _, err := q.RenewLock(d.LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("RenewLock at the end of the lock = %v, want ErrLockLost", err)
		}
	})
}

func TestClockThatIsSetForwardIsNoticed(t *testing.T) {
	var skew time.Duration
	cfg := Config{Expiry: Eager, Now: func() time.Time { return time.Now().Add(skew) }}
	alone(t, cfg, func(t *testing.T, q *Queue) {
		q.mu.Lock() // the timer reads skew
		skew = time.Hour
		q.mu.Unlock()
		send(t, q, Message{TTL: time.Hour})
		if got, want := seen(q.Peek(nil, 0, 1))[0].EnqueuedTime, time.Now().Add(time.Hour); !got.Equal(want) {
			t.Errorf("EnqueuedTime = %v, want %v by the broker's clock", got, want)
		}
		q.mu.Lock()
		skew = 3 * time.Hour
		q.mu.Unlock()
		time.Sleep(maxNap)
		synctest.Wait()
		if n := length(q); n != 0 {
			t.Errorf("messages after the clock was set past their expiry = %d, want 0", n)
		}
	})
}

func TestClockThatIsSetBackDelaysButNeverHurries(t *testing.T) {
	var skew time.Duration
	cfg := Config{Expiry: Eager, Now: func() time.Time { return time.Now().Add(skew) }}
	alone(t, cfg, func(t *testing.T, q *Queue) {
		send(t, q, Message{TTL: 30 * time.Second})
		q.mu.Lock()
		skew = -time.Hour
		q.mu.Unlock()
		time.Sleep(time.Hour + 30*time.Second - time.Microsecond)
		synctest.Wait()
		if n := length(q); n != 1 {
			t.Fatalf("messages a microsecond before expiry by the broker's clock = %d, want 1", n)
		}
		time.Sleep(time.Microsecond)
		synctest.Wait()
		if n := length(q); n != 0 {
			t.Errorf("messages at expiry by the broker's clock = %d, want 0", n)
		}
	})
}

// length looks without bringing the queue up to date, to see what its timer did.
func length(q *Queue) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.entries.byNumber.len()
}

func TestALargeWaveIsActivatedInParts(t *testing.T) {
	alone(t, Config{}, func(t *testing.T, q *Queue) {
		const n = 3*wave + 1
		ms := make([]Message, n)
		for i := range ms {
			ms[i].ScheduledEnqueueTime = time.Now().Add(time.Minute)
		}
		send(t, q, ms...)
		time.Sleep(time.Minute)
		synctest.Wait()
		// Nobody but the timer has touched the queue.
		q.mu.Lock()
		waiting, scheduled := q.waiting.line.len(), q.schedule.heap.len()
		q.mu.Unlock()
		if waiting != n || scheduled != 0 {
			t.Errorf("%d are activated, %d still scheduled, want all %d", waiting, scheduled, n)
		}
	})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q, _ := setup(t, Config{Now: func() time.Time { return now }})
	send(t, q, slices.Repeat([]Message{{ScheduledEnqueueTime: now.Add(time.Hour)}}, wave+1)...)
	q.mu.Lock()
	q.agenda.catchUp(instantOf(now.Add(time.Hour))) // as one operation does
	waiting := q.waiting.line.len()
	q.mu.Unlock()
	if waiting != wave {
		t.Errorf("one operation activates %d, want %d", waiting, wave)
	}
}

func TestNothingIsCancelledOnAQueueThatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{})
		seqs, err := q.Schedule(Message{ScheduledEnqueueTime: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		q.Close()
		if err := q.CancelScheduled(seqs...); !errors.Is(err, ErrClosed) {
			t.Errorf("CancelScheduled after Close = %v, want ErrClosed", err)
		}
	})
}
