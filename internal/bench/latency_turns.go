// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/internal/bench/delay"
)

// warmUpSends is the number of sends before the measurement, which open the links and warm up.
const warmUpSends = 100

// latencyScene starts a broker, and for each kind of companions a sidecar that reaches it at an
// address.
func latencyScene(ctx context.Context, p *Program, ways []way,
	address func(*scene) (string, error)) (_ *scene, at []string, err error) {
	sc, err := setScene(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	broker, err := address(sc)
	for _, w := range ways {
		if err != nil {
			break
		}
		if w.companions == "" {
			at = append(at, broker)
			continue
		}
		var c *child
		if c, err = sc.sidecar(ctx, broker, w.companions); err == nil {
			at = append(at, c.amqp)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, sc.stop())
	}
	return sc, at, nil
}

// atHand measures one send at a time, the ways in turns. All ways are open at once, with one
// broker. It sends so many that most fall into covered slots.
func (plan *Latency) atHand(ctx context.Context, p *Program) (_ []*latencyLine, err error) {
	ways := []way{wayDirect, wayUnmonitored, wayEach, waySlot}
	sc, at, err := latencyScene(ctx, p, ways,
		func(s *scene) (string, error) { return s.broker.broker, nil })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sc.stop()) }()
	send := make([]sender, len(ways))
	for i, w := range ways {
		senders, shut, err := plan.open(ctx, at[i], w, 1)
		if err != nil {
			return nil, errors.Join(err, sc.complaint())
		}
		defer shut()
		send[i] = senders[0]
	}
	took := make([][]time.Duration, len(ways))
	for k := range min(warmUpSends, plan.Sends) + plan.Sends {
		for i := range ways {
			began := time.Now()
			if _, err := send[i](ctx); err != nil {
				return nil, errors.Join(fmt.Errorf("send: %w", err), sc.complaint())
			}
			if k >= warmUpSends || plan.Sends < warmUpSends && k >= plan.Sends {
				took[i] = append(took[i], time.Since(began))
			}
		}
	}
	lines := make([]*latencyLine, len(ways))
	for i, w := range ways {
		lines[i] = newLatencyLine(w, 1, took[i])
		lines[i].AddedMicros = rounded(lines[i].P50Micros - lines[0].P50Micros)
	}
	return lines, nil
}

// open opens senders of the Go SDK, each on its own connection.
func (plan *Latency) open(ctx context.Context, address string, w way,
	n int) (senders []sender, shut func(), err error) {
	return sdkClients{senders: n, connections: n}.open(ctx, address, w.queue, plan.Payload)
}

// turns is the number of parts of the sends to a distant broker. The ways take turns with them.
const turns = 4

// away measures sends to a distant broker, by one sender and by many.
func (plan *Latency) away(ctx context.Context, p *Program) (_ []*latencyLine, err error) {
	var wire *delay.Link
	ways := []way{wayDirect, wayUnmonitored, wayEach, waySlot}
	sc, at, err := latencyScene(ctx, p, ways, func(s *scene) (_ string, err error) {
		if wire, err = delay.New(s.broker.broker, plan.RoundTrip); err != nil {
			return "", err
		}
		return wire.Address(), nil
	})
	if wire != nil {
		defer wire.Close()
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sc.stop()) }()
	var lines []*latencyLine
	for _, senders := range []int{1, parallelSenders} {
		some := ways
		if senders == 1 {
			some = ways[:3] // a single sender finds no covered slot
		}
		took, err := plan.sideBySide(ctx, at, some, senders)
		if err != nil {
			return nil, errors.Join(err, sc.complaint())
		}
		for i, w := range some {
			l := newLatencyLine(w, senders, took[i])
			first := l
			if i > 0 {
				first = lines[len(lines)-i] // direct
			}
			l.AddedMicros = rounded(l.P50Micros - first.P50Micros)
			l.RoundTrips = rounded(l.AddedMicros / float64(plan.RoundTrip.Microseconds()))
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// sideBySide returns the duration of each send, by way. All senders of all ways have open links at
// once.
func (plan *Latency) sideBySide(ctx context.Context, at []string, ways []way,
	senders int) ([][]time.Duration, error) {
	clients := make([][]sender, len(ways))
	for i, w := range ways {
		var shut func()
		var err error
		if clients[i], shut, err = plan.open(ctx, at[i], w, senders); err != nil {
			return nil, err
		}
		defer shut()
		// The first send waits for the settings of the queue.
		if _, err := sendInTurn(ctx, clients[i], 1); err != nil {
			return nil, err
		}
	}
	took := make([][]time.Duration, len(ways))
	for k := range turns {
		for i := range ways {
			some, err := sendInTurn(ctx, clients[i], plan.Delayed*(k+1)/turns-plan.Delayed*k/turns)
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], some...)
		}
	}
	return took, nil
}

// sendInTurn makes all senders send n times in parallel. It returns the duration of each send.
func sendInTurn(ctx context.Context, senders []sender, n int) ([]time.Duration, error) {
	took := make([][]time.Duration, len(senders))
	errs := make([]error, len(senders))
	var wg sync.WaitGroup
	for i, send := range senders {
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
