// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/monitorqueue"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

// While apps send, one monitor queue becomes four, and four become one again. Each time the new
// processes start beside the old ones. Every message becomes a dead letter in time and is notified
// of once, though its companion may lie where no process writes any more.
func TestMonitorQueuesBecomeMoreAndFewerUnderLoad(t *testing.T) {
	for name, slots := range map[string]bool{"each": false, "slot": true} {
		t.Run(name, func(t *testing.T) {
			seed := testseed.Of(t)
			play(t, func(s *scene) { s.moveQueues(rand.New(rand.NewPCG(seed, 1))) }, func(s *scene, c *broker.Config) {
				s.slots = slots
				for i := range movedQueues {
					name := movedQueue(i)
					s.monitored[name] = true
					c.Queues = append(c.Queues, broker.QueueConfig{Name: name, DeadLetteringOnMessageExpiration: true, LockDuration: time.Minute})
				}
				for _, name := range monitorqueue.Of(monitorQueue, mostQueues).Names()[1:] {
					c.Queues = append(c.Queues, broker.QueueConfig{Name: name, MaxDeliveryCount: 2000})
				}
			})
		})
	}
}

const (
	movedQueues = 12
	mostQueues  = 4
)

func movedQueue(i int) string { return fmt.Sprintf("moved-%d", i) }

func (s *scene) moveQueues(rng *rand.Rand) {
	s.Helper()
	stop := s.startMonitor()
	sent := map[string]string{}                                        // the queues of the messages, by id
	pause := time.Duration(racetest.Sized(60, 180)) * time.Millisecond // at most, after each message
	load := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Duration(rng.Int64N(int64(pause)))) {
			queue, id := movedQueue(rng.IntN(movedQueues)), fmt.Sprintf("m-%d", len(sent))
			s.send(queue, id, ttl(time.Second+time.Duration(rng.Int64N(int64(6*time.Second)))))
			sent[id] = queue
		}
	}
	s.MeasureClock()
	load(5 * time.Second)
	if n := s.onQueues(); n[1]+n[2]+n[3] > 0 {
		s.Errorf("with one monitor queue the others have %v companions", n)
	}
	for _, n := range []int{mostQueues, 1} {
		s.monitorQueues = n
		stopNext := s.startMonitor()
		if n == 1 { // as a process does that finds companions there: see internal/app/former.go
			for _, name := range monitorqueue.Of(monitorQueue, mostQueues).Names()[1:] {
				s.worker.ReceiveAlso(name)
				s.worker.ReceiveAlso(name)
			}
		}
		load(time.Second)
		stop()
		stop = stopNext
		load(time.Second)
		s.Scheduler = s.newScheduler(nil)
		s.MeasureClock()
		s.proxy = s.newProxy(s.Scheduler)
		load(5 * time.Second)
		if n == mostQueues {
			for i, companions := range s.onQueues() {
				if companions == 0 {
					s.Errorf("monitor queue %d of %d has no companions", i+1, n)
				}
			}
		}
	}
	time.Sleep(9 * time.Second)
	s.checkMoved(sent)
	stop()
}

// onQueues counts the companions on each monitor queue.
func (s *scene) onQueues() (all [mostQueues]int) {
	s.Helper()
	for i := range all {
		c := s.Queue(monitorqueue.Of(monitorQueue, mostQueues).Name(i)).Counts()
		all[i] = int(c.Scheduled + c.Active + c.DeadLetter)
	}
	return all
}

// checkMoved checks what became of the messages.
func (s *scene) checkMoved(sent map[string]string) {
	s.Helper()
	if left := s.onQueues(); left != [mostQueues]int{} {
		s.Errorf("%v companions are left", left)
	}
	notified := map[string]int{}
	for _, e := range s.Hook.Events() {
		notified[e.Subject]++
		if queue := sent[e.Subject]; e.Data.Entity != queue {
			s.Errorf("%s was notified for %s, want %s", e.Subject, e.Data.Entity, queue)
		}
	}
	dead := 0
	for i := range movedQueues {
		for _, lag := range s.Lags(movedQueue(i)) {
			dead++
			if lag > time.Second {
				s.Errorf("a message of %s was dead-lettered after %v", movedQueue(i), lag)
			}
		}
	}
	if dead != len(sent) {
		s.Errorf("%d of %d messages are dead letters", dead, len(sent))
	}
	for id := range sent {
		if notified[id] != 1 {
			s.Errorf("%s was notified %d times, want once", id, notified[id])
		}
	}
	s.Logf("%d messages", len(sent))
}

// A monitor queue that cannot be written holds up nothing that goes to another one.
func TestOneMonitorQueueIsFull(t *testing.T) {
	play(t, func(s *scene) {
		s.monitorQueues = 2
		s.Scheduler = s.newScheduler(nil)
		s.MeasureClock()
		s.proxy = s.newProxy(s.Scheduler)
		queues := monitorqueue.Of(monitorQueue, 2)
		full := queues.For(movedQueue(0))
		s.Namespace.Broker.Default().Inject(broker.Fault{Entity: full, Operation: broker.OnSend, Error: broker.EntityFull()})
		var all sync.WaitGroup
		for i := range movedQueues {
			all.Go(func() {
				began := time.Now()
				code, _ := s.post(movedQueue(i), fmt.Sprintf("m-%d", i), ttl(time.Hour))
				if onFull := queues.For(movedQueue(i)) == full; onFull == (code == 201) {
					s.Errorf("a send to %s = %d, its monitor queue is full: %v", movedQueue(i), code, onFull)
				} else if !onFull && time.Since(began) > 100*time.Millisecond {
					s.Errorf("a send to %s took %v", movedQueue(i), time.Since(began))
				}
			})
		}
		all.Wait()
	}, func(s *scene, c *broker.Config) {
		for i := range movedQueues {
			s.monitored[movedQueue(i)] = true
			c.Queues = append(c.Queues, broker.QueueConfig{Name: movedQueue(i)})
		}
		c.Queues = append(c.Queues, broker.QueueConfig{Name: monitorqueue.Of(monitorQueue, 2).Name(1)})
	})
}
