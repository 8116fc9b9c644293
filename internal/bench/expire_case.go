// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"

	"overdue/internal/lag"
)

const (
	// monitorQueue is empty again when all that a case costs has been counted.
	monitorQueue = "overdue-monitor"
	pollInterval = 200 * time.Millisecond
	// completionTimeout is how long after its deadline a message counts as lost. It is longer
	// than a lock, which a consumer may leave behind.
	completionTimeout = 90 * time.Second
	// quietPeriod is how long a measurement usually waits at its end for second notifications.
	quietPeriod = time.Second
)

// A expireRun is one case under way.
type expireRun struct {
	plan  *Expire
	child *child
	ttl   []time.Duration // of each message
	peak  float64         // resident memory of the child, in bytes

	mu        sync.Mutex
	completed map[string]int // by consumers, by message-id
	drained   []deadLetter   // taken out of the dead-letter queue
}

// consumed takes note that a consumer has completed a message.
func (r *expireRun) consumed(m *azservicebus.ReceivedMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.completed[m.MessageID]++
}

// measureExpiry is one case, in a child of its own.
func measureExpiry(ctx context.Context, p *Program, plan *Expire, n int,
	variant expireVariant) (_ *expireCase, err error) {
	child, err := startChild(ctx, p, "run", settings{
		"BROKER_AUTO_CREATE": "false",
		"BROKER_QUEUES": fmt.Sprintf("[{name: %s, deadLetteringOnMessageExpiration: true, lockDuration: %s}]",
			workQueue, lockDuration),
		"MONITOR_ENTITIES": fmt.Sprintf("[{queue: %s}]", workQueue),
		"MONITOR_QUEUE":    monitorQueue, "COMPANIONS": plan.Companions,
		"LOG_LEVEL": "warn", "LOG_FORMAT": "json",
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, child.stop()) }()
	r := &expireRun{plan: plan, child: child, ttl: plan.deadlines(n), completed: map[string]int{}}
	return r.measure(ctx, variant)
}

// deadlines are the times to live of n messages, uniform over the range and the same in every
// run.
func (plan *Expire) deadlines(n int) []time.Duration {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	all := make([]time.Duration, n)
	for i := range all {
		// as on the wire
		all[i] = (plan.Shortest + time.Duration(random.Int64N(int64(plan.Longest-plan.Shortest)+1))).Truncate(time.Millisecond)
	}
	return all
}

// measure sends, waits until all deadlines have passed and been seen to, and adds up.
func (r *expireRun) measure(ctx context.Context, variant expireVariant) (_ *expireCase, err error) {
	before, err := r.child.metrics(ctx)
	if err != nil {
		return nil, err
	}
	c := &expireCase{Outstanding: len(r.ttl), Drained: variant == drained}
	if variant == mixed {
		c.Consumers = consumers
	}
	if c.Drained {
		stop := r.drain(ctx)
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := r.sendAndConsume(ctx, c); err != nil {
		return nil, errors.Join(err, r.child.complaint())
	}
	noise := watchTimers()
	err = r.await(ctx, time.Now().Add(r.plan.Longest+completionTimeout))
	c.TimerLateMs = noise.end()
	if err != nil {
		return nil, err
	}
	after, err := r.child.metrics(ctx)
	if err != nil {
		return nil, err
	}
	c.account(before, after)
	c.MemoryMiB.Idle, c.MemoryMiB.Peak = mebibytes(before[sampleMemory]),
		mebibytes(max(r.peak, after[sampleMemory]))
	letters, err := r.child.deadLetters(ctx, workQueue)
	if err != nil {
		return nil, err
	}
	c.tally(r.ttl, r.completed, r.child.notified(), append(letters, r.takenLetters()...))
	return c, nil
}

// sendAndConsume sends the messages. In the mixed case, consumers work from the first send on,
// until they have nine tenths of the messages or the last deadline has passed.
func (r *expireRun) sendAndConsume(ctx context.Context, c *expireCase) error {
	g, ctx := errgroup.WithContext(ctx)
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	begun := make(chan struct{})
	g.Go(func() error {
		body := bytes.Repeat([]byte("x"), r.plan.Payload)
		load, err := openLoad(ctx, r.child.amqp, workQueue, func(i int) *azservicebus.Message {
			id := messageID(i)
			return &azservicebus.Message{Body: body, MessageID: &id, TimeToLive: &r.ttl[i]}
		})
		if err != nil {
			return err
		}
		defer load.shut()
		close(begun)
		began := time.Now()
		if err := load.send(ctx, 0, len(r.ttl)); err != nil {
			return err
		}
		took := time.Since(began)
		c.LoadMs = float64(took.Microseconds()) / 1000
		c.SendsPerSecond = float64(len(r.ttl)) / took.Seconds()
		c.LoadedBeforeFirstDue = took < r.plan.Shortest
		time.AfterFunc(r.plan.Longest, stop)
		samples, err := r.child.metrics(ctx)
		c.MemoryMiB.Loaded = mebibytes(samples[sampleMemory])
		return err
	})
	if c.Consumers > 0 {
		g.Go(func() error {
			select {
			case <-begun:
				return consume(consuming, r.child.amqp, workQueue, len(r.ttl)*9/10, r.consumed)
			case <-ctx.Done():
				return nil // the sender returns the reason
			}
		})
	}
	return g.Wait()
}

// await waits until every message has been consumed or is a dead letter with its notification,
// and no companion is left; until the end at the latest. Then it waits a little more, for what
// comes twice.
func (r *expireRun) await(ctx context.Context, end time.Time) error {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for n := 0; ; n++ {
		done, err := r.settled(ctx)
		if err != nil {
			return err
		}
		if done || time.Now().After(end) {
			break
		}
		if n%5 == 0 {
			samples, err := r.child.metrics(ctx)
			if err != nil {
				return err
			}
			r.peak = max(r.peak, samples[sampleMemory])
		}
		if err := r.pause(ctx, poll.C); err != nil {
			return err
		}
	}
	return r.pause(ctx, time.After(cmp.Or(r.plan.Quiet, quietPeriod)))
}

// settled reports whether there is nothing left to wait for.
func (r *expireRun) settled(ctx context.Context) (bool, error) {
	queues, err := r.child.counts(ctx)
	if err != nil {
		return false, err
	}
	work, monitor := queues[workQueue], queues[monitorQueue]
	left := work.Active + work.Deferred + work.Scheduled
	return left == 0 && len(r.child.notified()) >= work.DeadLetter && monitor.Active+monitor.Scheduled == 0, nil
}

// pause waits for a tick, unless ctx ends or the child does.
func (r *expireRun) pause(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-tick:
		return nil
	case <-r.child.gone:
		return errors.Join(fmt.Errorf("the measured overdue %s has ended", r.child.name),
			r.child.complaint())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Samples of /metrics that a case is made of.
const (
	sampleMemory     = "process_resident_memory_bytes"
	sampleCPU        = "process_cpu_seconds_total"
	sampleOperations = `overdue_broker_operations_total{operation="`
)

func mebibytes(bytes float64) float64 { return float64(int(bytes/(1<<20)*10+0.5)) / 10 }

// account takes what the case has cost from the metrics before and after it.
func (c *expireCase) account(before, after map[string]float64) {
	c.Operations, c.OperationsPerMessage = operationsBetween(before, after, c.Outstanding)
	c.CPUMicrosPerMessage = rounded((after[sampleCPU] - before[sampleCPU]) * 1e6 / float64(c.Outstanding))
}

// operationsBetween are the operations between two readings of the metrics, by kind, and for
// each of n messages.
func operationsBetween(before, after map[string]float64,
	n int) (byKind map[string]int, each float64) {
	byKind = map[string]int{}
	total := 0
	for name, v := range after {
		if kind, ok := strings.CutPrefix(name, sampleOperations); ok {
			if n := int(v - before[name]); n > 0 {
				byKind[strings.TrimSuffix(kind, `"}`)] = n
				total += n
			}
		}
	}
	return byKind, rounded(float64(total) / float64(n))
}

// tally counts the outcomes of messages by their times to live, completions, notifications and
// the broker's timestamps on dead letters.
func (c *expireCase) tally(ttl []time.Duration, completed, notified map[string]int,
	letters []deadLetter) {
	dead := make(map[string]int, len(letters))
	stamps := make(map[string]deadLetter, len(letters))
	for _, l := range letters {
		dead[l.MessageID]++
		stamps[l.MessageID] = l
	}
	var lags []time.Duration
	for i := range ttl {
		id := messageID(i)
		if l, ok := stamps[id]; ok {
			c.DeadLettered++
			lags = append(lags, l.DeadLetteredTime.Sub(l.EnqueuedTime.Add(ttl[i])))
		}
		if completed[id] > 0 {
			c.Consumed++
		}
		if notified[id] > 0 {
			c.Notified++
		}
		switch ends := completed[id] + dead[id]; {
		case ends == 0:
			c.Lost++
		case ends > 1 || notified[id] > 1:
			c.Twice++
		case dead[id] > 0 && notified[id] == 0:
			c.Unnotified++
		case dead[id] == 0 && notified[id] > 0:
			c.FalselyNotified++
		}
	}
	c.Early = lag.Early(lags)
	c.LagMs = lag.Of(lags)
}
