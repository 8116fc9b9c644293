// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// benchCostPlan is what `overdue bench cost` is asked to measure.
type benchCostPlan struct {
	rates      []int // messages per second
	span       time.Duration
	deadline   time.Duration
	companions string
	quiet      time.Duration // after all is done, for what comes twice
}

// benchCostResult is what --json prints of it.
type benchCostResult struct {
	benchHead
	Companions string           `json:"companions"`
	DeadlineMs int64            `json:"deadlineMs"`
	Cases      []*benchCostCase `json:"cases"`
}

// benchCostCase is one rate. Messages are counted once in each field.
type benchCostCase struct {
	Asked                int            `json:"asked"` // messages per second
	SendsPerSecond       float64        `json:"sendsPerSecond"`
	Sent                 int            `json:"sent"`
	Met                  int            `json:"met"`                  // completed by consumers
	Missed               int            `json:"missed"`               // dead-lettered: the consumers were too slow
	Lost                 int            `json:"lost"`                 // neither
	Twice                int            `json:"twice"`                // completed, dead-lettered or told of more than once, or both completed and dead-lettered
	Operations           map[string]int `json:"operations"`           // overdue_broker_operations_total of proxy and monitor, by kind
	OperationsPerMessage float64        `json:"operationsPerMessage"` // beyond its send, receive and complete, which are the app's
	SidecarMicros        float64        `json:"sidecarMicros"`        // of processor time of proxy and monitor for a message
}

func (p *program) benchCostCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Measure what Overdue asks of the broker for a message that is received in time",
		Long: "Sends so many messages a second through overdue proxy, while four consumers receive and complete them\n" +
			"there, and counts what proxy and monitor ask of the broker for them, from the first send until no\n" +
			"companion is left: about what a namespace would bill.",
	}
	plan := &benchCostPlan{quiet: benchQuiet}
	rates := cmd.Flags().String("rates", "1000,10000", "messages per second, one number for each case")
	companions := cmd.Flags().String("companions", "slot", "the companions that are written: "+strings.Join(byPath["companions"].enum, ", "))
	cmd.Flags().DurationVar(&plan.span, "span", 10*time.Second, "for how long messages are sent")
	cmd.Flags().DurationVar(&plan.deadline, "deadline", 3*time.Second, "the time to live of each message")
	return p.measuring(cmd, func() (_ *benchPart, err error) {
		if plan.rates, err = parseBenchNumbers("rates", *rates, 10, 1_000_000, benchMaxCases, "1000,10000"); err != nil {
			return nil, err
		}
		if plan.companions, err = parseBenchCompanions(*companions); err != nil {
			return nil, err
		}
		if err := within("span", plan.span, 10*time.Millisecond, 10*time.Minute); err != nil {
			return nil, err
		}
		return plan.part(), within("deadline", plan.deadline, benchMinDeadline, benchMaxDeadline)
	})
}

func (plan *benchCostPlan) part() *benchPart {
	return &benchPart{"cost", func(ctx context.Context, say func(string)) (benchResult, error) {
		r := &benchCostResult{benchHead: newBenchHead(), Companions: plan.companions, DeadlineMs: plan.deadline.Milliseconds()}
		for _, rate := range plan.rates {
			say(fmt.Sprintf("%d messages a second for %v", rate, plan.span))
			c, err := plan.measure(ctx, rate)
			if err != nil {
				return nil, fmt.Errorf("%d messages a second: %w", rate, err)
			}
			r.Cases = append(r.Cases, c)
		}
		return r, nil
	}}
}

// benchCostTargets are operations for a message, by messages per second, with companions of kind slot.
var benchCostTargets = map[int]float64{1000: 0.3, 10_000: 0.05}

func (r *benchCostResult) figures() (all []benchFigure) {
	for _, c := range r.Cases {
		f := benchFigure{
			Name: fmt.Sprintf("cost.%s.%d", r.Companions, c.Asked), Value: c.OperationsPerMessage, Unit: "operations",
			What: fmt.Sprintf("a message that is met costs, %d a second, companions: %s", c.Asked, r.Companions),
		}
		if target, ok := benchCostTargets[c.Asked]; ok && r.Companions == "slot" {
			f = f.atMost(target)
		}
		all = append(all, f)
	}
	return all
}

func (r *benchCostResult) writeTable(w io.Writer) error {
	rows := [][]string{{"asked per s", "sent per s", "sent", "met", "missed", "lost", "twice", "operations", "sidecar µs"}}
	notes := ""
	for _, c := range r.Cases {
		rows = append(rows, []string{
			fmt.Sprint(c.Asked), fmt.Sprintf("%.0f", c.SendsPerSecond), fmt.Sprint(c.Sent), fmt.Sprint(c.Met), fmt.Sprint(c.Missed), fmt.Sprint(c.Lost), fmt.Sprint(c.Twice),
			fmt.Sprintf("%.3f", c.OperationsPerMessage), fmt.Sprintf("%.1f", c.SidecarMicros),
		})
		notes += fmt.Sprintf("%d a second: %s\n", c.Asked, listOperations(c.Operations))
	}
	return writeResult(w, fmt.Sprintf("deadlines %d ms after each send, companions: %s, %s\n\n%s%s\n%s",
		r.DeadlineMs, r.Companions, r.where(), tableOf(rows), notes, tableOfFigures(r.figures())))
}

// verdict is an error when a message was lost or came twice. That consumers were too slow is none.
func (r *benchCostResult) verdict() error {
	var errs []error
	for _, c := range r.Cases {
		if c.Lost > 0 {
			errs = append(errs, fmt.Errorf("of %d messages %d were lost", c.Sent, c.Lost))
		}
		if c.Twice > 0 {
			errs = append(errs, fmt.Errorf("of %d messages %d came or were told twice", c.Sent, c.Twice))
		}
	}
	return errors.Join(errs...)
}

// tally says what became of each message.
func (c *benchCostCase) tally(completed, told map[string]int, letters []benchLetter) {
	dead := make(map[string]int, len(letters))
	for _, l := range letters {
		dead[l.MessageID]++
	}
	for i := range c.Sent {
		id := benchID(i)
		if completed[id] > 0 {
			c.Met++
		}
		if dead[id] > 0 {
			c.Missed++
		}
		switch ends := completed[id] + dead[id]; {
		case ends == 0:
			c.Lost++
		case ends > 1 || told[id] > 1:
			c.Twice++
		}
	}
}
