// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

// sendInterval is the interval between sends, each with as many messages as the rate requires.
const sendInterval = 10 * time.Millisecond

// measure measures one rate with its own proxy, monitor and broker.
func (plan *Cost) measure(ctx context.Context, p *Program, rate int) (_ *costCase, err error) {
	sc, err := startBroker(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sc.stop()) }()
	monitor, proxy, err := sc.addBoth(ctx, plan.Companions)
	if err != nil {
		return nil, err
	}
	before, err := sc.samples(ctx)
	if err != nil {
		return nil, err
	}
	c := &costCase{Asked: rate}
	completed, err := plan.sendAndConsume(ctx, proxy, c)
	if err != nil {
		return nil, errors.Join(err, sc.complaint())
	}
	if err := sc.await(ctx, plan.Deadline+completionTimeout,
		func() (bool, error) { return sc.settled(ctx, monitor, 0) }); err != nil {
		return nil, err
	}
	if err := sc.awaitDoubles(ctx, plan.Quiet); err != nil {
		return nil, err
	}
	after, err := sc.samples(ctx)
	if err != nil {
		return nil, err
	}
	c.Operations, c.OperationsPerMessage = operationsBetween(before, after, c.Sent)
	c.SidecarMicros = rounded((after[sampleCPU] - before[sampleCPU]) * 1e6 / float64(c.Sent))
	letters, err := sc.broker.deadLetters(ctx, workQueue)
	if err != nil {
		return nil, err
	}
	c.tally(outcomesOf(completed, monitor.notices(), letters))
	return c, nil
}

// sendAndConsume sends at the rate, while consumers receive. It returns the ids of
// completed messages.
func (plan *Cost) sendAndConsume(ctx context.Context, proxy *child, c *costCase) ([]string, error) {
	var completed collected[string]
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return consume(consuming, proxy.amqp, nil, unlimited,
			func(m *azservicebus.ReceivedMessage) { completed.add(m.MessageID) })
	})
	g.Go(func() error {
		defer stop()
		if err := plan.send(ctx, proxy, c); err != nil {
			return err
		}
		select { // messages that are not received until then have missed their deadlines
		case <-time.After(plan.Deadline):
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	err := g.Wait()
	return completed.all(), err
}

// send sends the messages of each tick as a batch. Several senders take turns, so that a sender
// that waits for its answer does not hold up the next tick.
func (plan *Cost) send(ctx context.Context, proxy *child, c *costCase) error {
	senders, shut, err := openSenders(ctx, proxy.amqp, slices.Repeat([]string{workQueue}, loadSenders), loadSenders)
	if err != nil {
		return err
	}
	defer shut()
	body := payload(usualPayload)
	message := func(i int) *azservicebus.Message { return newMessage(i, body, &plan.Deadline) }
	type stretch struct{ first, end int }
	ticks := make(chan stretch)
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	g.Go(func() error {
		defer close(ticks)
		tick := time.NewTicker(sendInterval)
		defer tick.Stop()
		for {
			// As many as the rate requires by now, to make up for late ticks.
			passed := min(time.Since(began), plan.Span)
			if end := int(passed.Seconds() * float64(c.Asked)); end > c.Sent {
				select {
				case ticks <- stretch{c.Sent, end}:
					c.Sent = end
				case <-ctx.Done():
					return nil // a sender returns the reason
				}
			}
			if passed == plan.Span {
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for _, s := range senders {
		g.Go(func() error {
			for t := range ticks {
				if err := sendBatches(ctx, s, t.first, t.end, message); err != nil {
					return fmt.Errorf("send: %w", err)
				}
			}
			return nil
		})
	}
	err = g.Wait()
	c.SendsPerSecond = rounded(float64(c.Sent) / time.Since(began).Seconds())
	return err
}
