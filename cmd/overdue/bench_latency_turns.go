// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// benchTurns is in how many pieces the sends to a broker far away are cut, with which the ways take turns.
const benchTurns = 4

// away measures sends to a broker that is a round trip away, one sender alone and many side by side.
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
		some := ways
		if senders == 1 {
			some = ways[:3] // one alone finds no slot covered
		}
		took, err := plan.sideBySide(ctx, at, some, senders)
		if err != nil {
			return nil, errors.Join(err, scene.complaint())
		}
		for i, w := range some {
			l := newBenchLatencyLine(w, senders, took[i])
			first := l
			if i > 0 {
				first = lines[len(lines)-i] // direct
			}
			l.AddedMicros = rounded(l.P50Micros - first.P50Micros)
			l.RoundTrips = rounded(l.AddedMicros / float64(plan.roundTrip.Microseconds()))
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// sideBySide is how long each send took, by way: so many senders of each, all of whose links are open at once.
func (plan *benchLatencyPlan) sideBySide(ctx context.Context, at []string, ways []benchWay, senders int) ([][]time.Duration, error) {
	workers := make([][]benchWorker, len(ways))
	for i, w := range ways {
		var shut func()
		var err error
		if workers[i], shut, err = plan.open(ctx, at[i], w, senders); err != nil {
			return nil, err
		}
		defer shut()
		// The first asks for what holds for the queue.
		if _, err := sendInTurn(ctx, workers[i], 1); err != nil {
			return nil, err
		}
	}
	took := make([][]time.Duration, len(ways))
	for k := range benchTurns {
		for i := range ways {
			some, err := sendInTurn(ctx, workers[i], plan.delayed*(k+1)/benchTurns-plan.delayed*k/benchTurns)
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], some...)
		}
	}
	return took, nil
}

// sendInTurn has each of the workers send n times, one after the other, while the others do so, too. It tells how long each send took.
func sendInTurn(ctx context.Context, workers []benchWorker, n int) ([]time.Duration, error) {
	took := make([][]time.Duration, len(workers))
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, send := range workers {
		wg.Go(func() {
			for range n {
				began := time.Now()
				if _, errs[i] = send(ctx); errs[i] != nil {
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	return slices.Concat(took...), errors.Join(errs...)
}
