// SPDX-License-Identifier: Apache-2.0

// Package bench measures Overdue from outside. It starts commands of the overdue binary as
// processes of their own, uses them over TCP as apps do, and compares the figures with their
// targets.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Program is the measured overdue binary.
type Program struct {
	Binary       string // path
	Version      string
	HeapHeadroom int // bytes that a process keeps allocated and never touches
}

// A Plan is one measurement.
type Plan interface {
	// Measure reports progress in short texts. If it fails, the result has the measurements until
	// then, or is nil.
	Measure(ctx context.Context, p *Program, progress func(string)) (Result, error)
}

// A Result is the result of a measurement. Its JSON is a contract with scripts: fields are added,
// never renamed.
type Result interface {
	Figures() []Figure            // those with targets, and related ones
	WriteTable(w io.Writer) error // everything, for people
	Verdict() error               // an error if a message was lost, early or the like; slowness is none
}

// Short returns all measurements in a short form. A scale below 1 only tests that they work. The
// directories of durable brokers are made in directory.
func Short(scale float64, directory string) Plan {
	n := func(usual, least int) int { return max(least, int(float64(usual)*scale)) }
	d := func(usual, least time.Duration) time.Duration {
		return max(least, time.Duration(float64(usual)*scale))
	}
	const ms = time.Millisecond
	quiet := d(quietPeriod, 50*ms)
	return allPlans{
		{"start", &Start{Starts: n(11, 2)}},
		{"memory", &Memory{
			Outstanding: []int{n(50_000, 10), n(100_000, 20)},
			Companions:  "each",
			Pause:       d(5*time.Second, 10*ms),
		}},
		{"send", &Send{
			Rounds:  n(5, 1),
			Span:    d(500*ms, 20*ms),
			Payload: usualPayload,
			Clients: []string{kindBatches, kindSingle, kindOne},
		}},
		{"broker", &Broker{
			Rounds:    n(5, 1),
			Span:      d(500*ms, 20*ms),
			Payload:   usualPayload,
			Directory: directory,
		}},
		{"latency", &Latency{
			Sends:     n(500, 5),
			Delayed:   n(40, 2),
			RoundTrip: 5 * ms,
			Payload:   usualPayload,
		}},
		{"cost", &Cost{
			Rates:      []int{1000, 10_000},
			Span:       d(5*time.Second, 100*ms),
			Deadline:   d(3*time.Second, 500*ms),
			Companions: "slot",
			Quiet:      quiet,
		}},
		{"expire", &Expire{
			Outstanding: []int{n(100_000, 20)},
			Shortest:    d(5*time.Second, 300*ms),
			Longest:     d(15*time.Second, 500*ms),
			Payload:     usualPayload,
			Companions:  "auto",
			Drained:     true,
			Quiet:       quiet,
		}},
		{"check", &Check{
			Live:    []int{1000, n(1_000_000, 2000)},
			Overdue: 10,
			Notice:  d(2*time.Second, 500*ms),
			Quiet:   quiet,
		}},
	}
}

// allPlans are measurements, made one after the other.
type allPlans []namedPlan

// A namedPlan is the measurement of a command.
type namedPlan struct {
	name string
	Plan
}

// If one of the measurements fails, Measure returns the results so far.
func (plans allPlans) Measure(ctx context.Context, p *Program, progress func(string)) (Result, error) {
	all := &allResults{Head: p.head(), results: map[string]Result{}}
	for i, plan := range plans {
		r, err := plan.Measure(ctx, p, func(text string) {
			progress(fmt.Sprintf("%d/%d %s: %s", i+1, len(plans), plan.name, text))
		})
		if r != nil {
			all.names = append(all.names, plan.name)
			all.results[plan.name] = r
		}
		if err != nil {
			return all, fmt.Errorf("bench %s: %w", plan.name, err)
		}
	}
	return all, nil
}

// allResults are the results of all measurements.
type allResults struct {
	Head
	names   []string // of the results, as they were measured
	results map[string]Result
}

func (r *allResults) Figures() (all []Figure) {
	for _, name := range r.names {
		all = append(all, r.results[name].Figures()...)
	}
	return all
}

func (r *allResults) WriteTable(w io.Writer) error {
	hint := ""
	if send, ok := r.results["send"].(*SendResult); ok && send.HAProxy == nil {
		hint = "\n" + haproxyHint + "\n"
	}
	return writeLines(w, fmt.Sprintf("overdue %s, %s\n\n%s%s", r.Version, r.where(),
		tableOfFigures(r.Figures()), hint))
}

func (r *allResults) Verdict() error {
	var errs []error
	for _, name := range r.names {
		if err := r.results[name].Verdict(); err != nil {
			errs = append(errs, fmt.Errorf("bench %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
