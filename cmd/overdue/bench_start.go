// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// benchStartPlan is what `overdue bench start` is asked to measure.
type benchStartPlan struct{ starts int }

// benchStartResult is what --json prints of it.
type benchStartResult struct {
	benchHead
	ReadyMs []float64 `json:"readyMs"` // of each start, from the start of the process until GET /readyz says yes
}

func (p *program) benchStartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Measure how long it takes from the start until everything is ready",
		Long: "Starts overdue run with its embedded broker, again and again, and measures the time until /readyz\n" +
			"says yes: the broker serves, the monitor is attached to it, the doors are open.",
	}
	plan := &benchStartPlan{}
	cmd.Flags().IntVar(&plan.starts, "starts", 11, "how often it is started, 1 to 1000")
	return p.measuring(cmd, func() (*benchPart, error) { return plan.part(), within("starts", plan.starts, 1, 1000) })
}

func (plan *benchStartPlan) part() *benchPart {
	return &benchPart{"start", func(ctx context.Context, say func(string)) (benchResult, error) {
		r := &benchStartResult{benchHead: newBenchHead()}
		for i := range plan.starts {
			say(fmt.Sprintf("%d of %d", i+1, plan.starts))
			c, err := startBenchChild(ctx, roleRun, nil)
			if err != nil {
				return nil, err
			}
			r.ReadyMs = append(r.ReadyMs, inMilliseconds(c.ready))
			if err := c.stop(); err != nil {
				return nil, err
			}
		}
		return r, nil
	}}
}

func (r *benchStartResult) figures() []benchFigure {
	return []benchFigure{benchFigure{Name: "start", What: "start to ready, embedded broker included", Unit: "ms"}.among(r.ReadyMs).atMost(200)}
}

func (r *benchStartResult) writeTable(w io.Writer) error {
	return writeResult(w, fmt.Sprintf("%d starts, %s\n\n%s", len(r.ReadyMs), r.where(), tableOfFigures(r.figures())))
}

func (r *benchStartResult) verdict() error { return nil }
