// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// many is more than the few operations of a test move, each of which does its part.
const many = 8*wave + 1

// waveQueues runs f with every kind of queue in which only a receive moves what has expired: it
// holds n expired messages and a live one behind them. receiver makes a consumer for them.
func waveQueues(t *testing.T, n int, f func(t *testing.T, q *Queue, receiver func() *Consumer)) {
	for _, expiry := range []Expiry{Lazy, LazyHead} {
		for _, sessions := range []bool{false, true} {
			t.Run(fmt.Sprintf("expiry %d, sessions %v", expiry, sessions), func(t *testing.T) {
				cfg := Config{Expiry: expiry, RequiresSession: sessions, DeadLetteringOnMessageExpiration: true, LockDuration: time.Hour}
				alone(t, cfg, func(t *testing.T, q *Queue) {
					for range n {
						send(t, q, Message{TTL: time.Minute, HasSession: sessions})
					}
					send(t, q, Message{Body: []byte("live"), HasSession: sessions})
					time.Sleep(time.Minute)
					f(t, q, func() *Consumer {
						if !sessions {
							return q.NewConsumer(PeekLock)
						}
						s, err := q.Sessions().Accept("")
						if err != nil {
							t.Fatalf("Accept: %v", err)
						}
						return s.NewConsumer(PeekLock)
					})
				})
			})
		}
	}
}

// amid does the part of one operation and shows what it leaves, before the timer or anybody else
// can go on; nor is the timer armed.
func amid(t *testing.T, q *Queue, operate func(now instant), check func()) {
	t.Helper()
	now, err := q.enter()
	if err != nil {
		t.Fatal(err)
	}
	operate(now)
	q.dispatch.assign(now)
	q.deadLetters.bury(q.dead, now)
	check()
	q.mu.Unlock()
}

func TestAReceiveMovesALargeWaveInPartsAndDeliversOnlyAfterAllOfIt(t *testing.T) {
	const n = many
	waveQueues(t, n, func(t *testing.T, q *Queue, receiver func() *Consumer) {
		c := receiver()
		amid(t, q, func(now instant) { c.change(1, now) }, func() {
			if len(c.outbox) != 0 {
				t.Errorf("%d messages were given amid the wave, want none", len(c.outbox))
			}
			q.dead.mu.Lock()
			dead := q.dead.entries.byNumber.len()
			q.dead.mu.Unlock()
			if active := q.entries.byNumber.len(); dead == 0 || dead >= n || active+dead != n+1 {
				t.Errorf("amid the wave %d messages are active and %d dead, want some of each and %d in all", active, dead, n+1)
			}
		})
		q.Wake()
		synctest.Wait() // the timer needs no time to pass
		if got := q.Counts(); got.Active != 1 || got.DeadLetter != n {
			t.Errorf("after the wave %d messages are active and %d dead, want 1 and %d", got.Active, got.DeadLetter, n)
		}
		if ds, _, _ := c.Take(nil); len(ds) != 1 || ds[0].text() != "live" {
			t.Errorf("Take after the wave = %d messages, want the live one", len(ds))
		}
	})
}

func TestADrainEndsWhenALargeWaveIsMoved(t *testing.T) {
	const n = many
	waveQueues(t, n, func(t *testing.T, q *Queue, receiver func() *Consumer) {
		c := receiver()
		c.AddCredit(5)
		c.Drain()
		given := 0
		for range c.Ready() {
			ds, drained, _ := c.Take(nil)
			if got := q.Counts().DeadLetter; (len(ds) > 0 || drained) && got != n {
				t.Fatalf("%d messages were dead when Take gave %d, drained %v; want %d", got, len(ds), drained, n)
			}
			if given += len(ds); drained {
				break
			}
		}
		if given != 1 {
			t.Errorf("the drain gave %d messages, want 1", given)
		}
	})
}

func TestAReceiverThatLeavesAmidALargeWaveStopsIt(t *testing.T) {
	const n = many
	waveQueues(t, n, func(t *testing.T, q *Queue, receiver func() *Consumer) {
		c := receiver()
		amid(t, q, func(now instant) { c.change(1, now) }, func() {})
		c.Close()
		left := q.Counts().Active
		if left < 2 || left > n {
			t.Fatalf("%d messages are active after the receiver has left, want a part of %d", left, n+1)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := q.Counts().Active; got != left {
			t.Errorf("%d messages are active a minute later, want %d: nobody receives", got, left)
		}
	})
}

func TestADrainGivesAllOfALargeWaveThatIsActivated(t *testing.T) {
	const n = 2*wave + 1
	var ahead time.Duration
	cfg := Config{Now: func() time.Time { return time.Now().Add(ahead) }}
	alone(t, cfg, func(t *testing.T, q *Queue) {
		at := q.cfg.Now().Add(time.Hour)
		for range n {
			send(t, q, Message{ScheduledEnqueueTime: at})
		}
		ahead = time.Hour // the timer does not know yet
		c := q.NewConsumer(ReceiveAndDelete)
		c.AddCredit(2 * n)
		c.Drain()
		got := 0
		for range c.Ready() {
			ds, drained, _ := c.Take(nil)
			if got += len(ds); drained {
				break
			}
		}
		if got != n {
			t.Errorf("the drain gave %d messages, want %d", got, n)
		}
	})
}

func TestAnEagerQueueMovesALargeWaveInParts(t *testing.T) {
	alone(t, Config{Expiry: Eager, DeadLetteringOnMessageExpiration: true}, func(t *testing.T, q *Queue) {
		for range many {
			send(t, q, Message{TTL: time.Minute})
		}
		send(t, q, text("live"))
		// Just before, so that this and not the timer is what begins.
		time.Sleep(time.Minute - time.Microsecond)
		q.mu.Lock()
		q.agenda.catchUp(instantOf(time.Now().Add(time.Second)))
		if got, want := q.waiting.line.len(), many+1-wave; got != want {
			t.Errorf("%d wait after one operation, want %d", got, want)
		}
		q.leave(instantOf(time.Now()))
		time.Sleep(time.Second)
		synctest.Wait()
		q.mu.Lock()
		got := q.waiting.line.len()
		q.mu.Unlock()
		if got != 1 {
			t.Errorf("%d wait after the timer, want the live one", got)
		}
	})
}
