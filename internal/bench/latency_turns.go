// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"overdue/internal/bench/delay"
)

// warmUpSends is the number of sends before the measurement, which open the links and warm up.
const warmUpSends = 100

// latencyWays are measured side by side.
var latencyWays = []way{wayDirect, wayUnmonitored, wayEach, waySlot}

// turns is the number of parts of the sends to a distant broker. The ways take turns with them.
const turns = 4

// atHand measures one send at a time. It sends so many that most fall into covered slots.
func (plan *Latency) atHand(ctx context.Context, p *Program) (_ []*latencyLine, err error) {
	sc, err := startBroker(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sc.stop()) }()
	return plan.compare(ctx, sc, latencyWays,
		latencyTurns{senders: 1, warmUp: min(warmUpSends, plan.Sends), sends: plan.Sends, turns: plan.Sends})
}

// away measures sends to a distant broker, by one sender and by many.
func (plan *Latency) away(ctx context.Context, p *Program) (_ []*latencyLine, err error) {
	sc, err := startBroker(ctx, p)
	if err != nil {
		return nil, err
	}
	wire, err := delay.New(sc.upstream, plan.RoundTrip)
	if err != nil {
		return nil, errors.Join(err, sc.stop())
	}
	defer wire.Close()
	defer func() { err = errors.Join(err, sc.stop()) }() // over the wire
	sc.upstream = wire.Address()
	var lines []*latencyLine
	for _, senders := range []int{1, parallelSenders} {
		ways := latencyWays
		if senders == 1 {
			ways = ways[:3] // a single sender finds no covered slot
		}
		// The first send waits for the settings of the queue.
		some, err := plan.compare(ctx, sc, ways,
			latencyTurns{senders: senders, warmUp: 1, sends: plan.Delayed, turns: turns})
		if err != nil {
			return nil, err
		}
		for _, l := range some {
			l.RoundTrips = rounded(l.AddedMicros / float64(plan.RoundTrip.Microseconds()))
		}
		lines = append(lines, some...)
	}
	return lines, nil
}

// latencyTurns say how the ways take turns.
type latencyTurns struct {
	senders int // in parallel, each on its own connection
	warmUp  int // sends of each before the measurement
	sends   int // of each
	turns   int // in which they are sent
}

// compare measures the ways in turns. All senders of all ways have open links at once, with one
// broker. The first way is what the others are compared with.
func (plan *Latency) compare(ctx context.Context, sc *scene, ways []way, t latencyTurns) ([]*latencyLine, error) {
	clients := make([][]sender, len(ways))
	for i, w := range ways {
		address, _, err := sc.open(ctx, w)
		if err != nil {
			return nil, err
		}
		var shut func()
		if clients[i], shut, err = (sdkClients{senders: t.senders, connections: t.senders}).open(ctx, address, w.queue, plan.Payload); err != nil {
			return nil, errors.Join(err, sc.complaint())
		}
		defer shut()
		if _, err := sendInTurn(ctx, clients[i], t.warmUp); err != nil {
			return nil, errors.Join(err, sc.complaint())
		}
	}
	took := make([][]time.Duration, len(ways))
	for k := range t.turns {
		for i := range ways {
			some, err := sendInTurn(ctx, clients[i], t.sends*(k+1)/t.turns-t.sends*k/t.turns)
			if err != nil {
				return nil, errors.Join(err, sc.complaint())
			}
			took[i] = append(took[i], some...)
		}
	}
	lines := make([]*latencyLine, len(ways))
	for i, w := range ways {
		lines[i] = newLatencyLine(w, t.senders, took[i])
		lines[i].AddedMicros = rounded(lines[i].P50Micros - lines[0].P50Micros)
	}
	return lines, nil
}

// sendInTurn makes all senders send n times in parallel. It returns the duration of each send.
func sendInTurn(ctx context.Context, senders []sender, n int) ([]time.Duration, error) {
	took := make([][]time.Duration, len(senders))
	g, ctx := errgroup.WithContext(ctx)
	for i, send := range senders {
		g.Go(func() error {
			for range n {
				began := time.Now()
				if _, err := send(ctx); err != nil {
					return fmt.Errorf("send: %w", err)
				}
				took[i] = append(took[i], time.Since(began))
			}
			return nil
		})
	}
	err := g.Wait()
	return slices.Concat(took...), err
}
