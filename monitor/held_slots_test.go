// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Times to live of several lengths have slots of their own each and share those of spans, while a
// consumer holds messages far beyond their deadlines. A read of the queue for one slot must not
// hide the messages of another.
func TestMessagesHeldAtTheirDeadlineBySlotsOfManyLengths(t *testing.T) {
	seed := testseed.Of(t)
	rounds := uint64(racetest.Sized(2, 1))
	if testseed.Chosen() {
		rounds = 6
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			play(t, func(s *scene) {
				rng := rand.New(rand.NewPCG(seed, round))
				s.MeasureClock()
				s.startMonitor()
				// Short ones have windows that are read for one slot alone, spans those that are
				// remembered.
				exact := []time.Duration{300 * time.Millisecond, 900 * time.Millisecond, 4 * time.Second, 11 * time.Second}
				ctx, stop := context.WithCancel(s.Context())
				over := make(chan struct{})
				go func() {
					defer close(over)
					s.holdAndGiveBack(ctx, rand.New(rand.NewPCG(seed, round+1000)))
				}()
				due := map[string]time.Time{}
				for i := range 60 {
					if rng.IntN(3) == 0 {
						lives := make([]time.Duration, 10)
						for j := range lives {
							lives[j] = time.Duration(500+rng.IntN(14_000)) * time.Millisecond
							due[fmt.Sprint("b-", s.sent+j+1)] = time.Now().Add(lives[j])
						}
						s.sendLives(workQueue, lives)
					} else {
						id, life := fmt.Sprint("m-", i), exact[rng.IntN(len(exact))]
						due[id] = time.Now().Add(life)
						s.send(workQueue, id, ttl(life))
					}
					// Between whole milliseconds, as real clocks are.
					time.Sleep(time.Duration(rng.IntN(400_000)) * time.Microsecond)
				}
				time.Sleep(15 * time.Second)
				stop()
				<-over
				time.Sleep(2 * time.Minute)
				notified := map[string]int{}
				for _, e := range s.Hook.Events() {
					notified[e.Subject]++
					if at := e.Data.DeadLetteredTime; at.Before(due[e.Subject].Truncate(time.Millisecond)) {
						t.Errorf("%s was dead-lettered %v before its deadline", e.Subject, due[e.Subject].Sub(at))
					}
				}
				for id := range due {
					if notified[id] != 1 {
						t.Errorf("%s was notified %d times, want once: nobody has completed it", id, notified[id])
					}
				}
				if c := s.Queue(workQueue).Counts(); c.Active+c.Deferred != 0 {
					t.Errorf("left on the work queue: %+v", c)
				}
				if n := s.CompanionsLeft(); n != 0 {
					t.Errorf("%d companions are left", n)
				}
			}, func(s *scene, c *broker.Config) {
				s.slots = true
				c.Queues[0].MaxDeliveryCount = 1000
				c.Queues[0].LockDuration = 20 * time.Second
			})
		})
	}
}

// holdAndGiveBack receives all messages, holds them for some seconds, and abandons them or lets
// their locks lapse, until ctx ends.
func (s *scene) holdAndGiveBack(ctx context.Context, rng *rand.Rand) {
	r, err := s.Client.NewReceiverForQueue(workQueue, nil)
	if err != nil {
		s.Error(err)
		return
	}
	defer func() { _ = r.Close(s.Context()) }()
	for ctx.Err() == nil {
		receiving, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		held, _ := r.ReceiveMessages(receiving, 1+rng.IntN(10), nil) // what the context cuts short has brought nothing
		cancel()
		time.Sleep(time.Duration(rng.IntN(6000)) * time.Millisecond)
		for _, m := range held {
			if rng.IntN(4) > 0 {
				_ = r.AbandonMessage(s.Context(), m, &azservicebus.AbandonMessageOptions{}) // its lock may have lapsed
			}
		}
	}
}
