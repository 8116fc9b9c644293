// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Bounds of what can be measured.
const (
	benchMaxOutstanding = 1_000_000
	benchMaxCases       = 20
	benchMinDeadline    = 100 * time.Millisecond
	benchMaxDeadline    = 10 * time.Minute
	benchMaxPayload     = 64 << 10 // bytes; several fit into a batch
)

// benchPlan is what `overdue bench expire` is asked to measure.
type benchPlan struct {
	outstanding       []int // of each case
	mixed             bool  // each case once more with consumers
	shortest, longest time.Duration
	payload           int           // bytes
	companions        string        // as the setting
	quiet             time.Duration // after all is done, for what comes twice
}

// benchExpireCommand prints the result on stdout, as a table or as JSON, and fails when a deadline was
// lost, honoured early or twice.
func (p *program) benchExpireCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "expire",
		Short: "Measure how late missed deadlines are honoured, and what that costs",
		Long: "For each number of outstanding deadlines this starts an Overdue with its embedded broker in a process\n" +
			"of its own, sends that many messages through the AMQP door, lets their deadlines pass and counts what\n" +
			"became of each: with no consumer, then with four consumers that receive nine tenths of them.\n" +
			"Lag is reckoned from the stamps of the broker. All cases take about two minutes.",
	}
	outstanding := cmd.Flags().String("outstanding", "1000,10000,100000", "how many deadlines are outstanding, one number for each case")
	mixed := cmd.Flags().Bool("mixed", true, "measure each case once more with four consumers, who receive 90 % of the messages")
	deadlines := cmd.Flags().String("deadline-range", "5s-15s", "deadlines are spread evenly over this range after each send")
	payload := cmd.Flags().String("payload", "256", "size of a message's body in bytes")
	companions := cmd.Flags().String("companions", byPath["companions"].def, "the companions that are written: "+strings.Join(byPath["companions"].enum, ", "))
	asJSON := cmd.Flags().Bool("json", false, "print nothing but the result, as JSON")
	strict := cmd.Flags().Bool("strict", false, "exit with 1 also when a target was missed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		plan, err := parseBenchPlan(*outstanding, *deadlines, *payload)
		if err == nil {
			plan.companions, err = parseBenchCompanions(*companions)
		}
		if err != nil {
			return &configError{err}
		}
		plan.mixed = *mixed
		report := newBenchReport(plan)
		show := func(c *benchCase) error { return c.writeRow(p.stdout) }
		if *asJSON {
			show = func(*benchCase) error { return nil }
		} else if err := report.writeHead(p.stdout); err != nil {
			return err
		}
		line := newProgress(p.stderr, p.getenv)
		err = report.measure(cmd.Context(), plan, line.say, func(c *benchCase) error {
			line.end()
			return show(c)
		})
		line.end()
		err = benchFailure(cmd.Context(), err)
		// What was measured before a failure or an interrupt is worth having, too.
		if *asJSON && (err == nil || len(report.Cases) > 0) {
			err = errors.Join(err, writeResultJSON(p.stdout, report))
		}
		err = errors.Join(err, report.verdict())
		if *strict {
			err = errors.Join(err, missedTargets(report.figures()))
		}
		return err
	}
	return cmd
}

// part is the measurement among others.
func (plan *benchPlan) part() *benchPart {
	return &benchPart{"expire", func(ctx context.Context, say func(string)) (benchResult, error) {
		report := newBenchReport(plan)
		err := report.measure(ctx, plan, say, func(*benchCase) error { return nil })
		return report, err
	}}
}

// measure measures one case after the other and hands each on as soon as it is done.
func (r *benchReport) measure(ctx context.Context, plan *benchPlan, say func(string), done func(*benchCase) error) error {
	consumers := []int{0}
	if plan.mixed {
		consumers = append(consumers, benchConsumers)
	}
	for _, c := range consumers {
		for _, n := range plan.outstanding {
			say(fmt.Sprintf("%d deadlines, the last in %v, %d consumers", n, plan.longest, c))
			one, err := measureExpiry(ctx, plan, n, c > 0)
			if err != nil {
				return fmt.Errorf("%d outstanding deadlines: %w", n, err)
			}
			r.Cases = append(r.Cases, one)
			if err := done(one); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseBenchPlan reads the flags; its errors name the one that is wrong.
func parseBenchPlan(outstanding, deadlines, payload string) (*benchPlan, error) {
	plan := &benchPlan{quiet: benchQuiet}
	var err error
	if plan.outstanding, err = parseBenchNumbers("outstanding", outstanding, 1, benchMaxOutstanding, benchMaxCases, "1000,10000"); err != nil {
		return nil, err
	}
	if plan.payload, err = parseBenchPayload(payload); err != nil {
		return nil, err
	}
	first, last, ok := strings.Cut(deadlines, "-")
	if !ok {
		return nil, fmt.Errorf("--deadline-range: %q is not a range; write one like 5s-15s", clip(deadlines))
	}
	var errs [2]error
	plan.shortest, errs[0] = parseDuration(strings.TrimSpace(first))
	plan.longest, errs[1] = parseDuration(strings.TrimSpace(last))
	if err := errors.Join(errs[0], errs[1]); err != nil {
		return nil, fmt.Errorf("--deadline-range: %q is not a range; write one like 5s-15s", clip(deadlines))
	}
	if plan.shortest < benchMinDeadline || plan.longest > benchMaxDeadline || plan.shortest > plan.longest {
		return nil, fmt.Errorf("--deadline-range: %s is out of bounds; it must go up, and lie between %s and %s", clip(deadlines), benchMinDeadline, benchMaxDeadline)
	}
	return plan, nil
}
