// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/operations"
	cost "overdue/internal/operator/plan"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/testseed"
)

// Nine of ten messages are received in time, each with a time to live of its own, all through the
// endpoints of the process that watches them. One in ten is missed, as soon as where nobody
// receives, and the others cost little.
func TestMessagesThatAreMostlyReceivedInTimeCostLittle(t *testing.T) {
	seed := testseed.Of(t)
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.Namespace.Net.Delay(pipenet.Both, 5*time.Millisecond) // sending takes a while
		const n, senders, consumers = 2000, 4, 4
		rng := rand.New(rand.NewPCG(seed, 0))
		lives := make([]time.Duration, n)
		for i := range lives {
			lives[i] = 5*time.Second + time.Duration(rng.IntN(2000))*time.Millisecond
		}
		dial := s.endpoint()
		ctx, stop := context.WithCancel(s.Context())
		var sending, consuming sync.WaitGroup
		var left atomic.Int64
		left.Store(n * 9 / 10)
		for range consumers {
			r := s.consumer(s.clientAt(dial), &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
			consuming.Go(func() { s.consumeUpTo(ctx, r, &left) })
		}
		for part := range slices.Chunk(lives, n/senders) {
			app := s.app(dial)
			sending.Go(func() { s.sendInBatches(app, part) })
		}
		sending.Wait()
		s.Namespace.Net.Delay(pipenet.Both, time.Millisecond)
		time.Sleep(9 * time.Second)
		stop()
		consuming.Wait()

		lags := s.Lags(workQueue)
		if notified := s.Hook.Subjects(); len(notified) != n/10 || len(slices.Compact(notified)) != n/10 || len(lags) != n/10 {
			s.Fatalf("%d events and %d dead letters, want one for each of %d messages", len(notified), len(lags), n/10)
		}
		if p99 := lags[len(lags)*99/100]; p99 > 50*time.Millisecond {
			s.Errorf("one in a hundred is dead-lettered more than %v late, want 50ms at most", p99)
		}
		ops := s.Operations("") / n
		s.Logf("%.3f operations a message; lag %v, %v at most", ops, lags[len(lags)/2], lags[len(lags)-1])
		for _, kind := range []string{operations.Schedule, operations.Receive, operations.Complete, operations.Peek, operations.Nudge, operations.Release} {
			s.Logf("%s: %.3f", kind, s.Operations(kind)/n)
		}
		if ops > .8 {
			s.Errorf("%.3f operations a message, want 0.8 at most", ops)
		}
		s.Settled(time.Second)
	}, early, func(s *scene, _ *broker.Config) { s.slots, s.auto = true, true })
}

// sendInBatches sends a message for each time to live, a hundred in each transfer.
func (s *scene) sendInBatches(app *azservicebus.Sender, lives []time.Duration) {
	for part := range slices.Chunk(lives, 100) {
		b, err := app.NewMessageBatch(s.Context(), nil)
		for _, life := range part {
			if err == nil {
				err = b.AddMessage(&azservicebus.Message{MessageID: to.Ptr(fmt.Sprint(rand.Uint64())), TimeToLive: &life, Body: []byte("body")}, nil)
			}
		}
		if err == nil {
			err = app.SendMessageBatch(s.Context(), b, nil)
		}
		if err != nil {
			s.Error(err)
			return
		}
	}
}

// consumeUpTo receives and completes as many messages as left says.
func (s *scene) consumeUpTo(ctx context.Context, r *azservicebus.Receiver, left *atomic.Int64) {
	for ctx.Err() == nil {
		n := min(100, left.Load())
		if n <= 0 {
			return
		}
		if left.Add(-n) < 0 {
			left.Add(n)
			continue
		}
		ms, err := r.ReceiveMessages(ctx, int(n), nil)
		left.Add(n - int64(len(ms)))
		if err != nil && ctx.Err() == nil {
			s.Error(err)
			return
		}
	}
}

// `overdue doctor plan` states how much of the monitor queue a companion takes.
func TestACompanionTakesTheSpaceOfThePlan(t *testing.T) {
	for companions, slots := range map[string]bool{cost.Each: false, cost.Slot: true} {
		t.Run(companions, func(t *testing.T) {
			p, err := cost.Of(cost.Load{Rate: 1, Deadline: time.Second, Queues: 1, Senders: 1, MonitorQueues: 1, Tier: cost.Standard, Companions: companions})
			if err != nil {
				t.Fatal(err)
			}
			play(t, func(s *scene) {
				s.MeasureClock()
				s.send(workQueue, "order-1", ttl(time.Hour))
				q, ok := s.Namespace.Broker.Queue(monitorQueue)
				if !ok {
					s.Fatal("there is no monitor queue")
				}
				counts, want := q.Counts(), p.MonitorQueueSize/p.Outstanding
				if size := float64(counts.Size) / float64(counts.Scheduled); math.Abs(size/want-1) > 0.1 {
					s.Errorf("%d companions take %.0f bytes each, want %.0f within a tenth", counts.Scheduled, size, want)
				}
			}, func(s *scene, _ *broker.Config) { s.slots = slots })
		})
	}
}
