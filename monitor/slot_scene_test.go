// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/redisstore"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/redistest"
	"overdue/internal/testing/testseed"
)

// With slots for companions every missed deadline is notified once and none early, in every mode of
// expiry. Meanwhile consumers complete in time, hold beyond the deadline, give back, set aside, or
// are not there.
func TestSlotsKeepEveryDeadline(t *testing.T) {
	seed := testseed.Of(t)
	for name, mode := range map[string]queue.Expiry{"lazy": queue.Lazy, "lazy-head": queue.LazyHead, "eager": queue.Eager, "redis": queue.Lazy} {
		t.Run(name, func(t *testing.T) {
			store := func(*scene, *broker.Config) {}
			if name == "redis" {
				store = inRedis(redistest.Start(t).Addr)
			}
			play(t, func(s *scene) {
				rng := rand.New(rand.NewPCG(seed, 0))
				s.MeasureClock()
				s.startMonitor()
				n := racetest.Sized(200, 120)
				lives := []time.Duration{900 * time.Millisecond, 2 * time.Second, 2015 * time.Millisecond, 7 * time.Second}
				due := map[string]time.Time{}
				done := make(chan map[string]bool)
				ctx, stop := context.WithCancel(s.Context())
				consumer := rng.Uint64()
				go func() { done <- s.consumeAtRandom(ctx, consumer) }()
				for i := range n {
					id := fmt.Sprint("m-", i)
					life := lives[rng.IntN(len(lives))]
					before := time.Now()
					s.send(workQueue, id, ttl(life))
					due[id] = before.Add(life)
					time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				stop()
				received := <-done
				time.Sleep(3 * time.Minute)
				notified := map[string]int{}
				for _, e := range s.Hook.Events() {
					notified[e.Subject]++
					if at := e.Data.DeadLetteredTime; at.Before(due[e.Subject].Truncate(time.Millisecond)) {
						t.Errorf("%s was dead-lettered %v before its deadline", e.Subject, due[e.Subject].Sub(at))
					}
				}
				for id := range due {
					switch want := !received[id]; {
					case want && notified[id] != 1:
						t.Errorf("%s was notified %d times, want once", id, notified[id])
					case !want && notified[id] != 0:
						t.Errorf("%s was received and notified of", id)
					}
				}
				if c := s.CompanionsKept(); c != (redisstore.Counts{}) {
					t.Errorf("companions are left: %+v", c)
				}
				if c := s.Queue(workQueue).Counts(); c.Active+c.Deferred != 0 {
					t.Errorf("left on the work queue: %+v", c)
				}
			}, func(s *scene, c *broker.Config) {
				s.slots = true
				c.Expiry = mode
				c.Queues[0].MaxDeliveryCount = 1000
			}, store)
		})
	}
}

// consumeAtRandom receives now and then, and returns the ids of what it has completed.
func (s *scene) consumeAtRandom(ctx context.Context, seed uint64) map[string]bool {
	rng := rand.New(rand.NewPCG(seed, 1))
	completed := map[string]bool{}
	r, err := s.Client.NewReceiverForQueue(workQueue, nil)
	if err != nil {
		s.Error(err)
		return nil
	}
	defer func() { _ = r.Close(s.Context()) }()
	var held []*azservicebus.ReceivedMessage
	for ctx.Err() == nil {
		receiving, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		ms, err := r.ReceiveMessages(receiving, 1+rng.IntN(5), nil)
		cancel()
		if err == nil {
			held = append(held, ms...)
		}
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		for _, m := range held {
			switch rng.IntN(4) {
			case 0, 1:
				if err := r.CompleteMessage(s.Context(), m, nil); err == nil {
					completed[m.MessageID] = true
				}
			case 2:
				_ = r.AbandonMessage(s.Context(), m, nil)
			case 3:
				_ = r.DeferMessage(s.Context(), m, nil)
			}
		}
		held = held[:0]
	}
	return completed
}

// Messages that are met in time cost next to nothing: a companion for each slot and time to live,
// and a check or two.
func TestSlotsCostLittle(t *testing.T) {
	for _, rate := range []int{1000, 10_000}[:racetest.Sized(2, 1)] {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			play(t, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				ctx, stop := context.WithCancel(s.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					s.drainForever(ctx)
				}()
				const seconds = 5
				batch := rate / 200
				for range seconds * 200 {
					s.sendBatch(workQueue, batch, 2*time.Second)
					time.Sleep(5 * time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				stop()
				<-done
				ops := float64(s.written.Load()) + s.Operations("")
				n := float64(seconds * 200 * batch)
				want := map[int]float64{1000: .3, 10_000: .05}[rate]
				t.Logf("%.0f messages, %.0f operations: %.3f for each", n, ops, ops/n)
				if ops/n > want {
					t.Errorf("%.3f operations for each message, want at most %v", ops/n, want)
				}
				if got := len(s.Hook.Events()); got != 0 {
					t.Errorf("%d notified, want none", got)
				}
			}, func(s *scene, c *broker.Config) { s.slots = true })
		})
	}
}

// sendBatch sends n messages at once.
func (s *scene) sendBatch(queue string, n int, life time.Duration) {
	s.Helper()
	s.sendLives(queue, slices.Repeat([]time.Duration{life}, n))
}

// drainForever receives all that comes until ctx ends.
func (s *scene) drainForever(ctx context.Context) {
	r, err := s.Client.NewReceiverForQueue(workQueue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if err != nil {
		s.Error(err)
		return
	}
	defer func() { _ = r.Close(s.Context()) }()
	for ctx.Err() == nil {
		_, _ = r.ReceiveMessages(ctx, 1000, nil)
	}
}

// The same where slots stand for spans of times to live, whose messages are read once for many
// slots. Some of them are received after that, given back or held until long after their deadlines.
func TestSlotsOfSpansKeepEveryDeadline(t *testing.T) {
	seed := testseed.Of(t)
	play(t, func(s *scene) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s.MeasureClock()
		s.startMonitor()
		const batch, batches = 20, 10
		due := map[string]time.Time{}
		done := make(chan map[string]bool)
		ctx, stop := context.WithCancel(s.Context())
		consumer := rng.Uint64()
		go func() { done <- s.consumeAtRandom(ctx, consumer) }()
		for range batches {
			lives := make([]time.Duration, batch)
			for i := range lives {
				lives[i] = time.Duration(3000+rng.IntN(3000)) * time.Millisecond
				due[fmt.Sprint("b-", s.sent+i+1)] = time.Now().Add(lives[i])
			}
			s.sendLives(workQueue, lives)
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
		time.Sleep(8 * time.Second)
		stop()
		received := <-done
		time.Sleep(time.Minute)
		notified := map[string]int{}
		for _, e := range s.Hook.Events() {
			notified[e.Subject]++
			if at := e.Data.DeadLetteredTime; at.Before(due[e.Subject].Truncate(time.Millisecond)) {
				t.Errorf("%s was dead-lettered %v before its deadline", e.Subject, due[e.Subject].Sub(at))
			}
		}
		for id := range due {
			if want := 1; received[id] && notified[id] != 0 || !received[id] && notified[id] != want {
				t.Errorf("%s: received %v, notified %d times", id, received[id], notified[id])
			}
		}
		if c := s.Queue(monitorQueue).Counts(); c.Active+c.Scheduled+c.DeadLetter != 0 {
			t.Errorf("left on the monitor queue: %+v", c)
		}
		if c := s.Queue(workQueue).Counts(); c.Active+c.Deferred != 0 {
			t.Errorf("left on the work queue: %+v", c)
		}
	}, func(s *scene, c *broker.Config) {
		s.slots = true
		c.Queues[0].MaxDeliveryCount = 1000
		c.Queues[0].LockDuration = 10 * time.Second
	})
}

// A companion comes late, since somebody else held it. Meanwhile later slots had the backlog read
// beyond its window, and their nudges expired its messages: only their dead letters are left.
func TestSlotThatComesLateFindsItsDeadLetters(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		other, err := s.Client.NewReceiverForQueue(monitorQueue, nil)
		s.Must(err)
		held := make(chan *azservicebus.ReceivedMessage)
		go func() {
			first, err := other.ReceiveMessages(s.Context(), 1, nil)
			s.Must(err)
			held <- first[0]
		}()
		time.Sleep(100 * time.Millisecond) // its credit is the oldest
		s.startMonitor()
		lives := make([]time.Duration, 100)
		for i := range lives {
			lives[i] = 3*time.Second + time.Duration(i)*30*time.Millisecond
		}
		s.sendLives(workQueue, lives)
		late := <-held
		time.Sleep(2 * time.Second)
		s.Must(other.AbandonMessage(s.Context(), late, nil))
		time.Sleep(time.Minute)
		var want []string
		for i := range lives {
			want = append(want, fmt.Sprint("missed b-", i+1))
		}
		s.WantEvents(want...)
	}, func(s *scene, c *broker.Config) { s.slots = true })
}
