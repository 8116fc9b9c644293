// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A benchWay is how a message gets to the broker.
type benchWay struct {
	name, what string
	companions string // of the sidecar that it passes; "": it passes none
	queue      string
	target     float64 // the least part of the direct rate
}

var (
	wayDirect      = benchWay{"direct", "straight to the broker", "", benchPlainQueue, 0}
	wayUnmonitored = benchWay{"unmonitored", "unmonitored sends", "each", benchPlainQueue, 0.8}
	wayEach        = benchWay{"each", "monitored sends, companions: each", "each", benchQueue, 0.6}
	waySlot        = benchWay{"slot", "monitored sends, companions: slot", "slot", benchQueue, 0.9}
)

// benchSendPlan is what `overdue bench send` is asked to measure.
type benchSendPlan struct {
	rounds  int
	span    time.Duration // of each way in a round
	payload int
	clients []string
}

// benchSendResult is what --json prints of it.
type benchSendResult struct {
	benchHead
	Rounds       int              `json:"rounds"`
	SpanMs       int64            `json:"spanMs"`
	PayloadBytes int              `json:"payloadBytes"`
	Lines        []*benchSendLine `json:"lines"`
}

// benchSendLine is one kind of client on one way: the medians of its rounds.
type benchSendLine struct {
	Clients           string     `json:"clients"`
	Way               string     `json:"way"`
	MessagesPerSecond float64    `json:"messagesPerSecond"`
	Ratio             float64    `json:"ratio"`       // of messages per second to those of direct in the same round
	RatioSpread       [2]float64 `json:"ratioSpread"` // the lowest and the highest of the rounds
	// Cost is the processor time that a message takes all processes together when it is sent directly ÷ the same on this
	// way: the ratio that there would be if nothing but the processors bounded either. Where others want them as well, two
	// processes get more of them than one, and the ratio of rates flatters the sidecar.
	Cost          float64 `json:"cost"`
	ClientMicros  float64 `json:"clientMicros"` // of processor time for a message
	SidecarMicros float64 `json:"sidecarMicros"`
	BrokerMicros  float64 `json:"brokerMicros"`

	ratios []float64
	way    benchWay
}

func (p *program) benchSendCommand() *cobra.Command {
	var names []string
	for _, k := range benchSendKinds {
		names = append(names, k.name)
	}
	cmd := &cobra.Command{
		Use:   "send",
		Short: "Measure sends through the sidecar against sends straight to the broker",
		Long: "The same clients send straight to overdue broker, through overdue proxy to a queue that is not\n" +
			"monitored, and through it to one that is, with companions of either kind. Each round has a broker and\n" +
			"sidecars of its own, and the ways take turns in it, five times each; ratios are of one round, and the\n" +
			"median of the rounds counts.\n" +
			"Clients: batches (the Go SDK, 16 senders on one connection, 100 messages at a time), single (the same,\n" +
			"one message at a time), spread (the same on 16 connections), rest (16 HTTP clients).",
	}
	plan := &benchSendPlan{}
	clients := cmd.Flags().String("clients", strings.Join(names, ","), "the clients to measure with")
	payload := cmd.Flags().String("payload", "256", "size of a message's body in bytes")
	cmd.Flags().IntVar(&plan.rounds, "rounds", 7, "how many rounds, 1 to 1000")
	cmd.Flags().DurationVar(&plan.span, "span", 500*time.Millisecond, "how long each way is measured in a round")
	return p.measuring(cmd, func() (_ *benchPart, err error) {
		plan.clients = strings.Split(*clients, ",")
		for _, c := range plan.clients {
			if !slices.Contains(names, c) {
				return nil, fmt.Errorf("--clients: %q is not one of %s", clip(c), strings.Join(names, ", "))
			}
		}
		if plan.payload, err = parseBenchPayload(*payload); err != nil {
			return nil, err
		}
		if err := within("rounds", plan.rounds, 1, 1000); err != nil {
			return nil, err
		}
		return plan.part(), within("span", plan.span, 10*time.Millisecond, time.Minute)
	})
}

func (plan *benchSendPlan) part() *benchPart {
	return &benchPart{"send", func(ctx context.Context, say func(string)) (benchResult, error) {
		r := &benchSendResult{benchHead: newBenchHead(), Rounds: plan.rounds, SpanMs: plan.span.Milliseconds(), PayloadBytes: plan.payload}
		for _, k := range benchSendKinds {
			if slices.Contains(plan.clients, k.name) {
				lines, err := plan.measure(ctx, k, say)
				if err != nil {
					return nil, err
				}
				r.Lines = append(r.Lines, lines...)
			}
		}
		return r, nil
	}}
}

// measure measures one kind of client on all ways, in turns.
func (plan *benchSendPlan) measure(ctx context.Context, k benchSendKind, say func(string)) ([]*benchSendLine, error) {
	ways := []benchWay{wayDirect, wayUnmonitored, wayEach, waySlot}
	rounds := make([][]benchSendRound, len(ways))
	for i := range plan.rounds {
		say(fmt.Sprintf("%s, round %d of %d", k.name, i+1, plan.rounds))
		round, err := plan.round(ctx, k, ways, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		for j, m := range round {
			rounds[j] = append(rounds[j], m)
		}
	}
	lines := make([]*benchSendLine, len(ways))
	for i, w := range ways {
		lines[i] = newBenchSendLine(k, w, rounds[i], rounds[0])
	}
	return lines, nil
}

// newBenchSendLine takes the medians of rounds.
func newBenchSendLine(k benchSendKind, w benchWay, rounds, direct []benchSendRound) *benchSendLine {
	median := func(all []benchSendRound, f func(benchSendRound) float64) float64 {
		values := make([]float64, len(all))
		for i, m := range all {
			values[i] = f(m)
		}
		m, _, _ := medianOf(values)
		return m
	}
	l := &benchSendLine{
		Clients: k.name, Way: w.name, way: w,
		MessagesPerSecond: median(rounds, func(m benchSendRound) float64 { return m.rate }),
		ClientMicros:      median(rounds, func(m benchSendRound) float64 { return m.client }),
		SidecarMicros:     median(rounds, func(m benchSendRound) float64 { return m.sidecar }),
		BrokerMicros:      median(rounds, func(m benchSendRound) float64 { return m.broker }),
	}
	if cost := median(rounds, benchSendRound.cpu); cost > 0 {
		l.Cost = rounded(median(direct, benchSendRound.cpu) / cost)
	}
	for i, m := range rounds {
		l.ratios = append(l.ratios, m.rate/direct[i].rate)
	}
	l.Ratio, l.RatioSpread[0], l.RatioSpread[1] = medianOf(l.ratios)
	return l
}

// figures are the ratios. REST is a door that a message is not sent through as it would be without: there is no target.
func (r *benchSendResult) figures() (all []benchFigure) {
	for _, l := range r.Lines {
		if l.Way == wayDirect.name {
			continue
		}
		f := benchFigure{Name: "send." + l.Clients + "." + l.Way, What: fmt.Sprintf("%s ÷ direct, %s", l.way.what, l.Clients)}.among(l.ratios)
		if l.Clients != "rest" {
			f = f.atLeast(l.way.target)
		}
		all = append(all, f, benchFigure{Name: f.Name + ".cost", What: "… for the same processor time", Value: l.Cost})
	}
	return all
}

func (r *benchSendResult) writeTable(w io.Writer) error {
	rows := [][]string{{"", "messages/s", "÷ direct", "lowest", "highest", "cost", "client µs", "sidecar µs", "broker µs"}}
	clients := ""
	for _, l := range r.Lines {
		if l.Clients != clients {
			clients = l.Clients
			rows = append(rows, []string{clients, "", "", "", "", "", "", "", ""})
		}
		row := []string{"  " + l.Way, fmt.Sprintf("%.0f", l.MessagesPerSecond)}
		for _, v := range []float64{l.Ratio, l.RatioSpread[0], l.RatioSpread[1], l.Cost, l.ClientMicros, l.SidecarMicros, l.BrokerMicros} {
			row = append(row, fmt.Sprintf("%.2f", v))
		}
		rows = append(rows, row)
	}
	return writeResult(w, fmt.Sprintf("%d rounds of %d ms for each way, payloads of %d bytes, %s\n\n%s\n%s",
		r.Rounds, r.SpanMs, r.PayloadBytes, r.where(), tableOf(rows), tableOfFigures(r.figures())))
}

func (r *benchSendResult) verdict() error { return nil }
