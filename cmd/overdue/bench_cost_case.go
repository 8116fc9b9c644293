// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

// benchTick is how often messages are sent, as many at a time as keep the rate.
const benchTick = 10 * time.Millisecond

// measure is one rate: a proxy, a monitor and a broker of its own.
func (plan *benchCostPlan) measure(ctx context.Context, rate int) (_ *benchCostCase, err error) {
	scene, err := setBenchScene(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scene.stop()) }()
	monitor, err := scene.add(ctx, roleMonitor, scene.broker.broker, plan.companions)
	if err != nil {
		return nil, err
	}
	proxy, err := scene.add(ctx, roleProxy, scene.broker.broker, plan.companions)
	if err != nil {
		return nil, err
	}
	before, err := scene.samples(ctx)
	if err != nil {
		return nil, err
	}
	c := &benchCostCase{Asked: rate}
	completed, err := plan.sendAndConsume(ctx, proxy, c)
	if err != nil {
		return nil, errors.Join(err, scene.complaint())
	}
	if _, err := scene.await(ctx, plan.deadline+benchPatience, func() (bool, error) { return scene.settled(ctx, monitor, 0) }); err != nil {
		return nil, err
	}
	if err := scene.pause(ctx, time.After(plan.quiet)); err != nil {
		return nil, err
	}
	after, err := scene.samples(ctx)
	if err != nil {
		return nil, err
	}
	c.Operations, c.OperationsPerMessage = operationsBetween(before, after, c.Sent)
	c.SidecarMicros = rounded((after[sampleCPU] - before[sampleCPU]) * 1e6 / float64(c.Sent))
	letters, err := scene.broker.deadLetters(ctx, benchQueue)
	if err != nil {
		return nil, err
	}
	c.tally(completed, monitor.toldOf(), letters)
	return c, nil
}

// sendAndConsume sends at the rate, while consumers receive what comes. It returns how often which message was completed.
func (plan *benchCostPlan) sendAndConsume(ctx context.Context, proxy *benchChild, c *benchCostCase) (map[string]int, error) {
	var mu sync.Mutex
	completed := map[string]int{}
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return benchConsume(consuming, proxy.door, benchQueue, 1<<40, func(id string) {
			mu.Lock()
			defer mu.Unlock()
			completed[id]++
		})
	})
	g.Go(func() error {
		defer stop()
		if err := plan.send(ctx, proxy, c); err != nil {
			return err
		}
		select { // what is not received until then has missed its deadline
		case <-time.After(plan.deadline):
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	err := g.Wait()
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(completed), err
}

// send sends the messages of each tick as a batch. Several senders take turns, so that one that waits for its answer does not
// hold up the next tick.
func (plan *benchCostPlan) send(ctx context.Context, proxy *benchChild, c *benchCostCase) error {
	senders, shut, err := benchSendersOf(ctx, proxy.door, benchQueue, benchSenders, benchSenders)
	if err != nil {
		return err
	}
	defer shut()
	body := bytes.Repeat([]byte("x"), 256)
	message := func(i int) *azservicebus.Message {
		id := benchID(i)
		return &azservicebus.Message{Body: body, MessageID: &id, TimeToLive: &plan.deadline}
	}
	type stretch struct{ first, end int }
	ticks := make(chan stretch)
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	g.Go(func() error {
		defer close(ticks)
		tick := time.NewTicker(benchTick)
		defer tick.Stop()
		for {
			// As many as the rate demands by now, so that a tick that came late is made up for.
			passed := min(time.Since(began), plan.span)
			if end := int(passed.Seconds() * float64(c.Asked)); end > c.Sent {
				select {
				case ticks <- stretch{c.Sent, end}:
					c.Sent = end
				case <-ctx.Done():
					return nil // a sender has told why
				}
			}
			if passed == plan.span {
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
