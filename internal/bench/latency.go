// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
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
			rows = append(rows, cells("  "+l.Way, l.Senders, l.Sends, fmt.Sprintf("%.1f", l.P50Micros),
				fmt.Sprintf("%.1f", l.P99Micros), fmt.Sprintf("%.1f", l.AddedMicros), trips))
		}
	}
	headline := fmt.Sprintf("payloads of %d bytes, %s", r.PayloadBytes, r.where())
	return (&report{headline: headline, rows: rows, figures: r.Figures()}).write(w)
}
