// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"overdue/internal/bench/delay"
)

// Latency measures the added latency of a send through the sidecar.
type Latency struct {
	Sends     int           // of each way, with the broker on this machine
	Delayed   int           // of each sender, with a distant broker
	RoundTrip time.Duration // to that broker
	Payload   int           // bytes
}

// LatencyResult is the result of Latency.
type LatencyResult struct {
	Head
	RoundTripMs  float64        `json:"roundTripMs"`
	PayloadBytes int            `json:"payloadBytes"`
	AtHand       []*latencyLine `json:"atHand"` // the broker on loopback; the ways in turns
	// a broker at the same distance from app and sidecar
	Away []*latencyLine `json:"away"`
}

// latencyLine is one way, from the call of the SDK until it returns.
type latencyLine struct {
	Way         string  `json:"way"`
	Senders     int     `json:"senders"` // in parallel
	Sends       int     `json:"sends"`
	P50Micros   float64 `json:"p50Micros"`
	P99Micros   float64 `json:"p99Micros"`
	AddedMicros float64 `json:"addedMicros"` // p50 beyond that of direct with as many senders
	// the same in round trips to the broker; 0 for a local broker
	RoundTrips float64 `json:"roundTrips"`
}

// Measure measures with a local broker first, then with a distant one.
func (plan *Latency) Measure(ctx context.Context, p *Program, progress func(string)) (Result, error) {
	r := &LatencyResult{Head: p.head(), RoundTripMs: inMilliseconds(plan.RoundTrip),
		PayloadBytes: plan.Payload}
	progress("a local broker")
	var err error
	if r.AtHand, err = plan.atHand(ctx, p); err != nil {
		return nil, err
	}
	progress(fmt.Sprintf("the broker %v away", plan.RoundTrip))
	if r.Away, err = plan.away(ctx, p); err != nil {
		return nil, err
	}
	return r, nil
}

// newLatencyLine calculates the percentiles.
func newLatencyLine(w way, senders int, took []time.Duration) *latencyLine {
	slices.Sort(took)
	at := func(percent int) float64 { return rounded(float64(took[len(took)*percent/100].Nanoseconds()) / 1000) }
	return &latencyLine{Way: w.name, Senders: senders, Sends: len(took), P50Micros: at(50),
		P99Micros: at(99)}
}

// Figures are in round trips, whose length depends on the network. A quarter of a round trip meets
// the target: the sidecar itself may take as much on a busy machine.
func (r *LatencyResult) Figures() (all []Figure) {
	for _, l := range r.Away {
		f := Figure{Name: fmt.Sprintf("latency.%s.%d.roundTrips", l.Way, l.Senders),
			Value: l.RoundTrips, Unit: "round trips"}
		switch {
		case l.Way == wayEach.name && l.Senders == 1:
			f.What = "added latency of a monitored send, companions: each, one sender"
			all = append(all, f.atMost(1))
		case l.Way == wayEach.name:
			f.What = fmt.Sprintf("… one among %d senders", l.Senders)
			all = append(all, f)
		case l.Way == waySlot.name:
			f.What = fmt.Sprintf("… companions: slot, one among %d senders", l.Senders)
			all = append(all, f.atMost(0.25))
		}
	}
	for _, l := range r.AtHand {
		if l.Way != wayDirect.name {
			all = append(all, Figure{
				Name: "latency." + l.Way + ".micros", Value: l.AddedMicros, Unit: "µs",
				What: fmt.Sprintf("… on this machine, %s (%.0f µs directly)", l.Way,
					r.AtHand[0].P50Micros),
			})
		}
	}
	return all
}

// WriteTable writes a row for each way and number of senders.
func (r *LatencyResult) WriteTable(w io.Writer) error {
	rows := [][]string{{"", "senders", "sends", "p50 µs", "p99 µs", "added µs", "round trips"}}
	for _, part := range []struct {
		name  string
		lines []*latencyLine
	}{{"local", r.AtHand}, {fmt.Sprintf("%v ms away", r.RoundTripMs), r.Away}} {
		rows = append(rows, []string{part.name, "", "", "", "", "", ""})
		for _, l := range part.lines {
			trips := ""
			if part.name != "local" {
				trips = fmt.Sprintf("%.3f", l.RoundTrips)
			}
			rows = append(rows, formatCells("  "+l.Way, l.Senders, l.Sends, fmt.Sprintf("%.1f", l.P50Micros),
				fmt.Sprintf("%.1f", l.P99Micros), fmt.Sprintf("%.1f", l.AddedMicros), trips))
		}
	}
	headline := fmt.Sprintf("payloads of %d bytes, %s", r.PayloadBytes, r.where())
	return writeReport(w, headline, rows, "", r.Figures())
}

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
	return plan.compare(ctx, sc, latencyWays, latencyTurns{
		senders: 1,
		warmUp:  min(warmUpSends, plan.Sends),
		sends:   plan.Sends,
		turns:   plan.Sends,
	})
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
		some, err := plan.compare(ctx, sc, ways, latencyTurns{
			senders: senders,
			warmUp:  1, // the first send waits for the settings of the queue
			sends:   plan.Delayed,
			turns:   turns,
		})
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
