// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	payload           int    // bytes
	companions        string // as the setting
}

// benchCommand is the measurements; each is a command below it.
func (p *program) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure Overdue on the embedded broker",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.benchExpireCommand())
	return cmd
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
		Args: cobra.NoArgs,
	}
	outstanding := cmd.Flags().String("outstanding", "1000,10000,100000", "how many deadlines are outstanding, one number for each case")
	mixed := cmd.Flags().Bool("mixed", true, "measure each case once more with four consumers, who receive 90 % of the messages")
	deadlines := cmd.Flags().String("deadline-range", "5s-15s", "deadlines are spread evenly over this range after each send")
	payload := cmd.Flags().String("payload", "256", "size of a message's body in bytes")
	companions := cmd.Flags().String("companions", byPath["companions"].def, "the companions that are written: "+strings.Join(byPath["companions"].enum, ", "))
	asJSON := cmd.Flags().Bool("json", false, "print nothing but the result, as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		plan, err := parseBenchPlan(*outstanding, *deadlines, *payload)
		if err != nil {
			return &configError{err}
		}
		if _, err := byPath["companions"].parse(*companions); err != nil {
			return &configError{fmt.Errorf("--companions: %w", err)}
		}
		plan.mixed, plan.companions = *mixed, *companions
		report := newBenchReport(plan)
		show := func(c *benchCase) error { return c.writeRow(p.stdout) }
		if *asJSON {
			show = func(*benchCase) error { return nil }
		} else if err := report.writeHead(p.stdout); err != nil {
			return err
		}
		err = p.benchExpire(cmd.Context(), plan, func(c *benchCase) error {
			report.Cases = append(report.Cases, c)
			return show(c)
		})
		// What was measured before a failure or an interrupt is worth having, too.
		if *asJSON && (err == nil || len(report.Cases) > 0) {
			err = errors.Join(err, report.writeJSON(p.stdout))
		}
		return errors.Join(err, report.verdict())
	}
	return cmd
}

// benchExpire measures one case after the other and hands each on as soon as it is done.
func (p *program) benchExpire(ctx context.Context, plan *benchPlan, done func(*benchCase) error) error {
	consumers := []bool{false}
	if plan.mixed {
		consumers = append(consumers, true)
	}
	for _, mixed := range consumers {
		for _, n := range plan.outstanding {
			c, err := p.measureExpiry(ctx, plan, n, mixed)
			if ctx.Err() != nil {
				return errors.New("interrupted before the end")
			}
			if err != nil {
				return fmt.Errorf("%d outstanding deadlines: %w", n, err)
			}
			if err := done(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseBenchPlan reads the flags; its errors name the one that is wrong.
func parseBenchPlan(outstanding, deadlines, payload string) (*benchPlan, error) {
	plan := &benchPlan{}
	for _, text := range strings.Split(outstanding, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--outstanding: %q is not a whole number; write a list like 1000,10000", clip(text))
		}
		if n < 1 || n > benchMaxOutstanding {
			return nil, fmt.Errorf("--outstanding: %d is out of bounds; it must be between 1 and %d", n, benchMaxOutstanding)
		}
		plan.outstanding = append(plan.outstanding, n)
	}
	if n := len(plan.outstanding); n > benchMaxCases {
		return nil, fmt.Errorf("--outstanding: %d numbers are too many; give %d at most", n, benchMaxCases)
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
	size, err := parseSize(payload)
	if err != nil {
		return nil, fmt.Errorf("--payload: %w", err)
	}
	if size > benchMaxPayload {
		return nil, fmt.Errorf("--payload: %s is out of bounds; it must be between 0 and %s", payload, formatSize(benchMaxPayload))
	}
	plan.payload = int(size)
	return plan, nil
}
