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

// A benchPart is one measurement of `overdue bench`, ready to be made.
type benchPart struct {
	name    string
	measure func(ctx context.Context, say func(string)) (benchResult, error)
}

// benchCommand makes all measurements in a short form; each in full is a command below it.
func (p *program) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure Overdue on the embedded broker, beside the targets that it is held to",
		Long: "Makes all measurements one after the other in a short form, which takes about three minutes, and\n" +
			"sets beside each the target that Overdue is held to. Each in full is a command of its own.\n" +
			"Everything that is measured is a process of its own on this machine; clients reach it over TCP.\n" +
			"Ratios are of rounds that take turns, so what else the machine does hits both sides.\n" +
			"Exit code 1 when a message was lost, early or told twice; with --strict also when a target was missed.",
	}
	scale := cmd.Flags().Float64("scale", 1, "how much is measured, 0.001 to 10: below 1 it only shows that all of it works")
	p.measuring(cmd, func() (*benchPart, error) {
		if !(*scale >= 0.001 && *scale <= 10) {
			return nil, fmt.Errorf("--scale is %v; it must be between 0.001 and 10", *scale)
		}
		return benchAll(benchParts(*scale)), nil
	})
	cmd.AddCommand(p.benchStartCommand(), p.benchMemoryCommand(), p.benchSendCommand(), p.benchLatencyCommand(),
		p.benchCostCommand(), p.benchExpireCommand(), p.benchLookCommand())
	return cmd
}

// benchParts are all measurements in their short form, at that scale.
func benchParts(scale float64) []*benchPart {
	n := func(usual, least int) int { return max(least, int(float64(usual)*scale)) }
	d := func(usual, least time.Duration) time.Duration {
		return max(least, time.Duration(float64(usual)*scale))
	}
	quiet := d(benchQuiet, 50*time.Millisecond)
	return []*benchPart{
		(&benchStartPlan{starts: n(11, 2)}).part(),
		(&benchMemoryPlan{outstanding: []int{n(50_000, 10), n(100_000, 20)}, companions: "each", pause: d(5*time.Second, 10*time.Millisecond)}).part(),
		(&benchSendPlan{rounds: n(5, 1), span: d(500*time.Millisecond, 20*time.Millisecond), payload: 256, clients: []string{"batches", "single"}}).part(),
		(&benchLatencyPlan{sends: n(500, 5), delayed: n(40, 2), roundTrip: 5 * time.Millisecond, payload: 256}).part(),
		(&benchCostPlan{
			rates: []int{1000, 10_000}, span: d(5*time.Second, 100*time.Millisecond), deadline: d(3*time.Second, 500*time.Millisecond),
			companions: "slot", quiet: quiet,
		}).part(),
		(&benchPlan{
			outstanding: []int{n(100_000, 20)}, shortest: d(5*time.Second, 300*time.Millisecond), longest: d(15*time.Second, 500*time.Millisecond),
			payload: 256, companions: "auto", quiet: quiet,
		}).part(),
		(&benchLookPlan{live: []int{1000, n(1_000_000, 2000)}, overdue: 10, notice: d(2*time.Second, 500*time.Millisecond), quiet: quiet}).part(),
	}
}

// benchAll makes one measurement of many. What was measured before one of them failed is told, too.
func benchAll(parts []*benchPart) *benchPart {
	return &benchPart{"bench", func(ctx context.Context, say func(string)) (benchResult, error) {
		all := &benchWhole{benchHead: newBenchHead(), results: map[string]benchResult{}}
		for i, part := range parts {
			about := func(text string) { say(fmt.Sprintf("%d/%d %s: %s", i+1, len(parts), part.name, text)) }
			r, err := part.measure(ctx, about)
			if r != nil {
				all.names = append(all.names, part.name)
				all.results[part.name] = r
			}
			if err != nil {
				return all, fmt.Errorf("bench %s: %w", part.name, err)
			}
		}
		return all, nil
	}}
}

// measuring makes a command of a measurement: it prints the result on stdout, as a table or as JSON, and fails when a
// promise was broken. prepare reads the flags.
func (p *program) measuring(cmd *cobra.Command, prepare func() (*benchPart, error)) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, "print nothing but the result, as JSON")
	strict := cmd.Flags().Bool("strict", false, "exit with 1 also when a target was missed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		part, err := prepare()
		if err != nil {
			return &configError{err}
		}
		line := newProgress(p.stderr, p.getenv)
		r, err := part.measure(cmd.Context(), line.say)
		line.end()
		err = benchFailure(cmd.Context(), err)
		if r == nil {
			return err
		}
		if *asJSON {
			err = errors.Join(err, writeResultJSON(p.stdout, r))
		} else {
			err = errors.Join(err, r.writeTable(p.stdout))
		}
		err = errors.Join(err, r.verdict())
		if *strict {
			err = errors.Join(err, missedTargets(r.figures()))
		}
		return err
	}
	return cmd
}

// benchFailure is why a measurement failed. When somebody has interrupted it, that is the reason, whatever the processes
// had to say that were measured.
func benchFailure(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted before the end")
	}
	return err
}

// parseBenchNumbers reads a list of whole numbers.
func parseBenchNumbers(flag, text string, least, most, count int, example string) ([]int, error) {
	var all []int
	for _, one := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(one))
		if err != nil {
			return nil, fmt.Errorf("--%s: %q is not a whole number; write a list like %s", flag, clip(one), example)
		}
		if n < least || n > most {
			return nil, fmt.Errorf("--%s: %d is out of bounds; it must be between %d and %d", flag, n, least, most)
		}
		all = append(all, n)
	}
	if len(all) > count {
		return nil, fmt.Errorf("--%s: %d numbers are too many; give %d at most", flag, len(all), count)
	}
	return all, nil
}

// parseBenchPayload reads the size of a body.
func parseBenchPayload(text string) (int, error) {
	size, err := parseSize(text)
	if err != nil {
		return 0, fmt.Errorf("--payload: %w", err)
	}
	if size > benchMaxPayload {
		return 0, fmt.Errorf("--payload: %s is out of bounds; it must be between 0 and %s", text, formatSize(benchMaxPayload))
	}
	return int(size), nil
}

// parseBenchCompanions reads the kind of companions.
func parseBenchCompanions(text string) (string, error) {
	if _, err := byPath["companions"].parse(text); err != nil {
		return "", fmt.Errorf("--companions: %w", err)
	}
	return text, nil
}

// within checks that a flag's value lies between bounds.
func within[T int | time.Duration](flag string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("--%s: %v is out of bounds; it must be between %v and %v", flag, v, least, most)
	}
	return nil
}

// inMilliseconds is d in milliseconds, to the microsecond.
func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
