// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/bench"
)

// aResult is a result without a measurement.
type aResult struct {
	Value  float64 `json:"value"`
	broken error
}

func (r *aResult) Figures() []bench.Figure {
	target, met := 1.0, r.Value <= 1
	return []bench.Figure{{Name: "f", What: "f", Value: r.Value, Target: &target, Met: &met}}
}

func (r *aResult) WriteTable(w io.Writer) error {
	_, err := io.WriteString(w, "a table\n")
	return err
}

func (r *aResult) Verdict() error { return r.broken }

// aPlan measures nothing.
type aPlan struct {
	result bench.Result
	err    error
}

func (*aPlan) Name() string { return "x" }

func (plan *aPlan) Measure(context.Context, *bench.Program, func(string)) (bench.Result, error) {
	return plan.result, plan.err
}

func TestAMeasurementFailsWhereAPromiseIsBrokenAndOnDemandWhereATargetIsMissed(t *testing.T) {
	slow, broken := &aResult{Value: 2}, &aResult{Value: 0.5, broken: errors.New("1 was lost")}
	for name, c := range map[string]struct {
		plan    bench.Plan
		args    []string
		ctx     func(context.Context) context.Context
		stdout  string
		failure string
	}{
		"a target is missed": {plan: &aPlan{slow, nil}, stdout: "a table\n"},
		"and is asked for": {plan: &aPlan{slow, nil}, args: []string{"--strict"},
			stdout: "a table\n", failure: "target missed: f: 2, not ≤ 1"},
		"a promise is broken": {plan: &aPlan{broken, nil}, args: []string{"--json"},
			stdout: "{\"value\":0.5}\n", failure: "1 was lost"},
		"nothing was measured": {plan: &aPlan{nil, errors.New("no room")},
			args: []string{"--json"}, failure: "no room"},
		"some was, before it failed": {plan: &aPlan{slow, errors.New("no room")},
			stdout: "a table\n", failure: "no room"},
		"somebody has interrupted that": {plan: &aPlan{slow, errors.New("a child has ended")},
			ctx: cancelled, stdout: "a table\n", failure: "interrupted before the end"},
		"or interrupts the end of it": {plan: &aPlan{slow, nil}, ctx: cancelled,
			stdout: "a table\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			p := &program{getenv: func(string) string { return "" }, stdout: &stdout,
				stderr: &stderr}
			cmd := p.measuring(&cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true},
				func() (bench.Plan, error) { return c.plan, nil })
			cmd.SetArgs(append([]string{}, c.args...)) // nil would be those of the test
			ctx := t.Context()
			if c.ctx != nil {
				ctx = c.ctx(ctx)
			}
			failure := ""
			if err := cmd.ExecuteContext(ctx); err != nil {
				failure = err.Error()
			}
			if stdout.String() != c.stdout || failure != c.failure || stderr.Len() > 0 {
				t.Errorf("printed %q and failed with %q, want %q and %q; %q on stderr",
					stdout.String(), failure, c.stdout, c.failure, stderr.String())
			}
		})
	}
}

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func TestExpireEndsWhenItIsInterruptedAndKeepsWhatItHasMeasured(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	plan := &bench.Expire{Outstanding: []int{1, 2}, Shortest: 300 * time.Millisecond,
		Longest: 300 * time.Millisecond, Companions: "auto"}
	r, err := plan.Measure(ctx, &bench.Program{Binary: binary}, func(text string) {
		if strings.HasPrefix(text, "2 deadlines") {
			cancel()
		}
	})
	if err = benchFailure(ctx, err); err == nil || err.Error() != "interrupted before the end" {
		t.Errorf("an interrupted bench fails with %v, want that it was interrupted", err)
	}
	if r, ok := r.(*bench.ExpireResult); !ok || len(r.Cases) != 1 || r.Cases[0].Outstanding != 1 {
		t.Errorf("result = %+v, want the case that was done", r)
	}
}
