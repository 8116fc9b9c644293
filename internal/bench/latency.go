// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// Latency measures how much longer one send takes through the sidecar.
type Latency struct {
	Sends     int           // of each way, with the broker on this machine
	Delayed   int           // of each sender, with a broker that is a round trip away
	RoundTrip time.Duration // to that broker
	Payload   int           // bytes
}

// LatencyResult is the result of Latency.
type LatencyResult struct {
	Head
	RoundTripMs  float64        `json:"roundTripMs"`
	PayloadBytes int            `json:"payloadBytes"`
	AtHand       []*latencyLine `json:"atHand"` // the broker on loopback; the ways in turns
	// the broker a round trip away, from app and sidecar alike
	Away []*latencyLine `json:"away"`
}

// latencyLine is one way, from the call of the SDK until it returns.
type latencyLine struct {
	Way         string  `json:"way"`
	Senders     int     `json:"senders"` // side by side
	Sends       int     `json:"sends"`
	P50Micros   float64 `json:"p50Micros"`
	P99Micros   float64 `json:"p99Micros"`
	AddedMicros float64 `json:"addedMicros"` // p50 beyond that of direct with as many senders
	// that is so many of those to the broker; 0 where it is at hand
	RoundTrips float64 `json:"roundTrips"`
}

// Name is that of the command.
func (*Latency) Name() string { return "latency" }

// Measure measures with the broker on this machine first, then with one that is a round trip away.
func (plan *Latency) Measure(ctx context.Context, p *Program,
	progress func(string)) (Result, error) {
	r := &LatencyResult{Head: p.head(), RoundTripMs: inMilliseconds(plan.RoundTrip),
		PayloadBytes: plan.Payload}
	progress("the broker at hand")
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

// newLatencyLine takes the percentiles.
func newLatencyLine(w way, senders int, took []time.Duration) *latencyLine {
	slices.Sort(took)
	at := func(percent int) float64 { return rounded(float64(took[len(took)*percent/100].Nanoseconds()) / 1000) }
	return &latencyLine{Way: w.name, Senders: senders, Sends: len(took), P50Micros: at(50),
		P99Micros: at(99)}
}

// Figures are in round trips, because the network decides how long one takes. A quarter of one
// counts as none: the sidecar itself may take as much on a busy machine.
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
	}{{"at hand", r.AtHand}, {fmt.Sprintf("%v ms away", r.RoundTripMs), r.Away}} {
		rows = append(rows, []string{part.name, "", "", "", "", "", ""})
		for _, l := range part.lines {
			trips := ""
			if part.name != "at hand" {
				trips = fmt.Sprintf("%.3f", l.RoundTrips)
			}
			rows = append(rows, []string{
				"  " + l.Way, fmt.Sprint(l.Senders), fmt.Sprint(l.Sends),
				fmt.Sprintf("%.1f", l.P50Micros), fmt.Sprintf("%.1f", l.P99Micros),
				fmt.Sprintf("%.1f", l.AddedMicros), trips,
			})
		}
	}
	return writeText(w, fmt.Sprintf("payloads of %d bytes, %s\n\n%s\n%s", r.PayloadBytes, r.where(),
		tableOf(rows), tableOfFigures(r.Figures())))
}

// Verdict is nil: a slow send breaks no promise.
func (r *LatencyResult) Verdict() error { return nil }
