// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// benchLatencyPlan is what `overdue bench latency` is asked to measure.
type benchLatencyPlan struct {
	sends     int           // of each way, with the broker at hand
	delayed   int           // of each sender, with a broker that is a round trip away
	roundTrip time.Duration // to that broker
	payload   int
}

// benchLatencyResult is what --json prints of it.
type benchLatencyResult struct {
	benchHead
	RoundTripMs  float64             `json:"roundTripMs"`
	PayloadBytes int                 `json:"payloadBytes"`
	AtHand       []*benchLatencyLine `json:"atHand"` // the broker on loopback; the ways in turns
	Away         []*benchLatencyLine `json:"away"`   // the broker a round trip away, from app and sidecar alike
}

// benchLatencyLine is one way, from the call of the SDK until it returns.
type benchLatencyLine struct {
	Way         string  `json:"way"`
	Senders     int     `json:"senders"` // side by side
	Sends       int     `json:"sends"`
	P50Micros   float64 `json:"p50Micros"`
	P99Micros   float64 `json:"p99Micros"`
	AddedMicros float64 `json:"addedMicros"` // p50 beyond that of direct with as many senders
	RoundTrips  float64 `json:"roundTrips"`  // that is so many of those to the broker; 0 where it is at hand
}

func (p *program) benchLatencyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Measure how much longer one send takes through the sidecar",
		Long: "Sends one message after the other with the Go SDK, straight to overdue broker and through overdue\n" +
			"proxy: first with all of them on this machine, the ways in turns, which says what the sidecar itself\n" +
			"takes; then with a broker that is a round trip away from both, which says how often it is waited for.\n" +
			"Sends that a slot covers are measured with 16 senders side by side: one alone finds none covered there.",
	}
	plan := &benchLatencyPlan{}
	payload := cmd.Flags().String("payload", "256", "size of a message's body in bytes")
	cmd.Flags().IntVar(&plan.sends, "sends", 2000, "sends of each way with the broker at hand, 1 to 1000000")
	cmd.Flags().IntVar(&plan.delayed, "delayed", 100, "sends of each sender with the broker a round trip away, 1 to 10000")
	cmd.Flags().DurationVar(&plan.roundTrip, "round-trip", 5*time.Millisecond, "how far away that broker is; with 20ms and more nothing goes by slots")
	return p.measuring(cmd, func() (_ *benchPart, err error) {
		if plan.payload, err = parseBenchPayload(*payload); err != nil {
			return nil, err
		}
		if err := within("sends", plan.sends, 1, 1_000_000); err != nil {
			return nil, err
		}
		if err := within("delayed", plan.delayed, 1, 10_000); err != nil {
			return nil, err
		}
		return plan.part(), within("round-trip", plan.roundTrip, time.Millisecond, time.Second)
	})
}

func (plan *benchLatencyPlan) part() *benchPart {
	return &benchPart{"latency", func(ctx context.Context, say func(string)) (benchResult, error) {
		r := &benchLatencyResult{benchHead: newBenchHead(), RoundTripMs: inMilliseconds(plan.roundTrip), PayloadBytes: plan.payload}
		say("the broker at hand")
		var err error
		if r.AtHand, err = plan.atHand(ctx); err != nil {
			return nil, err
		}
		say(fmt.Sprintf("the broker %v away", plan.roundTrip))
		if r.Away, err = plan.away(ctx); err != nil {
			return nil, err
		}
		return r, nil
	}}
}

// newBenchLatencyLine takes the percentiles.
func newBenchLatencyLine(w benchWay, senders int, took []time.Duration) *benchLatencyLine {
	slices.Sort(took)
	at := func(percent int) float64 { return rounded(float64(took[len(took)*percent/100].Nanoseconds()) / 1000) }
	return &benchLatencyLine{Way: w.name, Senders: senders, Sends: len(took), P50Micros: at(50), P99Micros: at(99)}
}

// figures: what a round trip takes is the network's, so the targets are in round trips. None means less than a quarter of one, which
// the sidecar itself may take on a busy machine.
func (r *benchLatencyResult) figures() (all []benchFigure) {
	for _, l := range r.Away {
		f := benchFigure{Name: fmt.Sprintf("latency.%s.%d.roundTrips", l.Way, l.Senders), Value: l.RoundTrips, Unit: "round trips"}
		switch {
		case l.Way == wayEach.name && l.Senders == 1:
			f.What = "a send takes longer by, monitored, companions: each"
			all = append(all, f.atMost(1))
		case l.Way == wayEach.name:
			f.What = fmt.Sprintf("… while %d others send", l.Senders-1)
			all = append(all, f)
		case l.Way == waySlot.name:
			f.What = "… companions: slot, which is covered mostly"
			all = append(all, f.atMost(0.25))
		}
	}
	for _, l := range r.AtHand {
		if l.Way != wayDirect.name {
			all = append(all, benchFigure{
				Name: "latency." + l.Way + ".micros", Value: l.AddedMicros, Unit: "µs",
				What: fmt.Sprintf("… on this machine, %s (%.0f µs directly)", l.Way, r.AtHand[0].P50Micros),
			})
		}
	}
	return all
}

func (r *benchLatencyResult) writeTable(w io.Writer) error {
	rows := [][]string{{"", "senders", "sends", "p50 µs", "p99 µs", "added µs", "round trips"}}
	for _, part := range []struct {
		name  string
		lines []*benchLatencyLine
	}{{"at hand", r.AtHand}, {fmt.Sprintf("%v ms away", r.RoundTripMs), r.Away}} {
		rows = append(rows, []string{part.name, "", "", "", "", "", ""})
		for _, l := range part.lines {
			trips := ""
			if part.name != "at hand" {
				trips = fmt.Sprintf("%.3f", l.RoundTrips)
			}
			rows = append(rows, []string{
				"  " + l.Way, fmt.Sprint(l.Senders), fmt.Sprint(l.Sends),
				fmt.Sprintf("%.1f", l.P50Micros), fmt.Sprintf("%.1f", l.P99Micros), fmt.Sprintf("%.1f", l.AddedMicros), trips,
			})
		}
	}
	return writeResult(w, fmt.Sprintf("payloads of %d bytes, %s\n\n%s\n%s", r.PayloadBytes, r.where(), tableOf(rows), tableOfFigures(r.figures())))
}

func (r *benchLatencyResult) verdict() error { return nil }
