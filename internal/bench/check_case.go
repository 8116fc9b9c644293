// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// fillAttempts is how often a queue is filled again before the machine counts as too slow.
const fillAttempts = 4

// errFilledLate: the deadlines came before the last message was sent.
var errFilledLate = errors.New("the deadlines came before the queue was filled; is the machine too busy?")

// measure measures a queue of one length. It estimates the time to fill it from the first tenth. If
// that was too short, it starts again with twice the time.
func (plan *Check) measure(ctx context.Context, p *Program, live int) (*checkCase, error) {
	for fills := range fillAttempts {
		c, err := plan.once(ctx, p, live, time.Duration(1<<fills))
		if errors.Is(err, errFilledLate) && fills < fillAttempts-1 {
			continue
		}
		if c != nil {
			c.FilledAgainst = fills
		}
		return c, err
	}
	return nil, errFilledLate
}

func (plan *Check) once(ctx context.Context, p *Program, live int, slack time.Duration) (_ *checkCase, err error) {
	sc, err := startBroker(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sc.stop()) }()
	monitor, proxy, err := sc.addBoth(ctx, "auto")
	if err != nil {
		return nil, err
	}
	c := &checkCase{Live: live, Overdue: plan.Overdue}
	began := time.Now()
	ttl, due, err := plan.fill(ctx, sc, proxy, live, slack)
	if err != nil {
		return nil, errors.Join(err, sc.complaint())
	}
	c.FilledInMs = inMilliseconds(time.Since(began))
	// The work that follows filling ends before the deadlines.
	if time.Until(due) < plan.Notice/2 {
		return nil, errFilledLate
	}
	if err := sc.pause(ctx, time.Until(due)-plan.Notice/4); err != nil {
		return nil, err
	}
	before, brokerBefore, err := sc.both(ctx, monitor)
	if err != nil {
		return nil, err
	}
	if err := sc.await(ctx, time.Until(due)+completionTimeout, func() (bool, error) {
		all, err := sc.settled(ctx, monitor, live)
		return all && time.Now().After(due) && monitor.notifiedCount() >= plan.Overdue, err
	}); err != nil {
		return nil, err
	}
	c.PassMs = inMilliseconds(time.Since(due))
	after, brokerAfter, err := sc.both(ctx, monitor)
	if err != nil {
		return nil, err
	}
	if err := sc.awaitDoubles(ctx, plan.Quiet); err != nil {
		return nil, err
	}
	c.Operations, _ = operationsBetween(before, after, 1)
	for _, n := range c.Operations {
		c.Total += n
	}
	c.MonitorCPUMs = rounded((after[sampleCPU] - before[sampleCPU]) * 1000)
	c.BrokerCPUMs = rounded((brokerAfter[sampleCPU] - brokerBefore[sampleCPU]) * 1000)
	c.BrokerMiB = mebibytes(brokerAfter[sampleMemory])
	letters, err := sc.broker.deadLetters(ctx, workQueue)
	if err != nil {
		return nil, err
	}
	queues, err := sc.broker.counts(ctx)
	if err != nil {
		return nil, err
	}
	c.tally(ttl, outcomesOf(nil, monitor.notices(), letters), queues[workQueue].Active)
	return c, nil
}

// both are the metrics of the monitor and of the broker.
func (s *scene) both(ctx context.Context, monitor *child) (m, broker map[string]float64, err error) {
	if m, err = monitor.metrics(ctx); err != nil {
		return nil, nil, err
	}
	broker, err = s.broker.metrics(ctx)
	return m, broker, err
}

// fill sends the live messages straight to the broker, and those that will be overdue through
// the proxy, one after each part of the former. It returns the times to live of the latter and
// when they end.
func (plan *Check) fill(ctx context.Context, sc *scene, proxy *child, live int,
	slack time.Duration) (ttl map[string]time.Duration, due time.Time, err error) {
	senders, shut, err := openSenders(ctx, proxy.amqp, []string{workQueue}, 1)
	if err != nil {
		return nil, due, err
	}
	defer shut()
	body, day := payload(usualPayload), 24*time.Hour
	ttl = map[string]time.Duration{}
	load, err := openLoad(ctx, sc.broker.broker, []string{workQueue}, func(int) *azservicebus.Message {
		return &azservicebus.Message{Body: body, TimeToLive: &day}
	})
	if err != nil {
		return nil, due, err
	}
	defer load.shut()
	// The first tenth shows how long the whole takes.
	began, tenth := time.Now(), live/10
	if err := load.send(ctx, 0, tenth); err != nil {
		return nil, due, err
	}
	due = time.Now().Add(plan.Notice + time.Since(began)*15*slack)
	for i := range plan.Overdue {
		left := time.Until(due).Truncate(time.Millisecond)
		if left < time.Millisecond {
			return nil, due, errFilledLate
		}
		if err := senders[0].SendMessage(ctx, newMessage(i, body, &left), nil); err != nil {
			return nil, due, fmt.Errorf("send: %w", err)
		}
		ttl[messageID(i)] = left
		if err := load.send(ctx, tenth+(live-tenth)*i/plan.Overdue,
			tenth+(live-tenth)*(i+1)/plan.Overdue); err != nil {
			return nil, due, err
		}
	}
	return ttl, due, nil
}
