// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// benchWarmUp is how many sends open the links and warm all up before any counts.
const benchWarmUp = 100

// benchLatencyScene is a broker and a sidecar for each kind of companions, which reach it at an address.
func benchLatencyScene(ctx context.Context, ways []benchWay, address func(*benchScene) (string, error)) (_ *benchScene, at []string, err error) {
	scene, err := setBenchScene(ctx)
	if err != nil {
		return nil, nil, err
	}
	broker, err := address(scene)
	for _, w := range ways {
		if err != nil {
			break
		}
		if w.companions == "" {
			at = append(at, broker)
			continue
		}
		var c *benchChild
		if c, err = scene.sidecar(ctx, broker, w.companions); err == nil {
			at = append(at, c.door)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, scene.stop())
	}
	return scene, at, nil
}

// atHand measures one send at a time, the ways in turns: all of them are open at once, before one broker. So many are sent
// that most fall into slots that are covered.
func (plan *benchLatencyPlan) atHand(ctx context.Context) (_ []*benchLatencyLine, err error) {
	ways := []benchWay{wayDirect, wayUnmonitored, wayEach, waySlot}
	scene, at, err := benchLatencyScene(ctx, ways, func(s *benchScene) (string, error) { return s.broker.broker, nil })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scene.stop()) }()
	send := make([]benchWorker, len(ways))
	for i, w := range ways {
		workers, shut, err := plan.open(ctx, at[i], w, 1)
		if err != nil {
			return nil, errors.Join(err, scene.complaint())
		}
		defer shut()
		send[i] = workers[0]
	}
	took := make([][]time.Duration, len(ways))
	for k := range min(benchWarmUp, plan.sends) + plan.sends {
		for i := range ways {
			began := time.Now()
			if _, err := send[i](ctx); err != nil {
				return nil, errors.Join(fmt.Errorf("send: %w", err), scene.complaint())
			}
			if k >= benchWarmUp || plan.sends < benchWarmUp && k >= plan.sends {
				took[i] = append(took[i], time.Since(began))
			}
		}
	}
	lines := make([]*benchLatencyLine, len(ways))
	for i, w := range ways {
		lines[i] = newBenchLatencyLine(w, 1, took[i])
		lines[i].AddedMicros = rounded(lines[i].P50Micros - lines[0].P50Micros)
	}
	return lines, nil
}

// open has senders of the Go SDK, on a connection each.
func (plan *benchLatencyPlan) open(ctx context.Context, address string, w benchWay, n int) (workers []benchWorker, shut func(), err error) {
	return benchWorkersOf(ctx, address, w.queue, plan.payload, n, n, false)
}

// away measures sends to a broker that is a round trip away, one sender alone or many side by side. The ways come one after the
// other: they wait, and do not get into each other's way.
func (plan *benchLatencyPlan) away(ctx context.Context) (_ []*benchLatencyLine, err error) {
	var wire *benchWire
	ways := []benchWay{wayDirect, wayUnmonitored, wayEach, waySlot}
	scene, at, err := benchLatencyScene(ctx, ways, func(s *benchScene) (_ string, err error) {
		if wire, err = newBenchWire(s.broker.broker, plan.roundTrip); err != nil {
			return "", err
		}
		return wire.address(), nil
	})
	if wire != nil {
		defer wire.close()
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scene.stop()) }()
	var lines []*benchLatencyLine
	for _, senders := range []int{1, benchAtOnce} {
		direct := 0.0
		for i, w := range ways {
			if senders == 1 && w.name == waySlot.name {
				continue // one alone finds no slot covered
			}
			took, err := plan.sideBySide(ctx, at[i], w, senders)
			if err != nil {
				return nil, errors.Join(err, scene.complaint())
			}
			l := newBenchLatencyLine(w, senders, took)
			if w.name == wayDirect.name {
				direct = l.P50Micros
			}
			l.AddedMicros = rounded(l.P50Micros - direct)
			l.RoundTrips = rounded(l.AddedMicros / float64(plan.roundTrip.Microseconds()))
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// sideBySide is how long each send of so many senders took.
func (plan *benchLatencyPlan) sideBySide(ctx context.Context, address string, w benchWay, senders int) ([]time.Duration, error) {
	workers, shut, err := plan.open(ctx, address, w, senders)
	if err != nil {
		return nil, err
	}
	defer shut()
	took := make([][]time.Duration, senders)
	errs := make([]error, senders)
	var wg sync.WaitGroup
	for i, send := range workers {
		wg.Go(func() {
			for k := range plan.delayed + 1 {
				began := time.Now()
				if _, errs[i] = send(ctx); errs[i] != nil {
					return
				}
				if k > 0 { // the first opens the link, and asks for what holds for the queue
					took[i] = append(took[i], time.Since(began))
				}
			}
		})
	}
	wg.Wait()
	var all []time.Duration
	for _, some := range took {
		all = append(all, some...)
	}
	return all, errors.Join(errs...)
}
