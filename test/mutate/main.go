// SPDX-License-Identifier: Apache-2.0

// Mutate asks whether the tests of a package notice when its code is wrong: `make mutate`.
//
// It builds a package once with all of its mutants in it, each behind a switch that an environment
// variable turns on, lets every test run alone to learn which mutants it reaches, and then runs for
// each mutant of a seeded sample the tests that reach it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	sample := flag.Int("n", 50, "mutants of each package, `number`")
	seed := flag.Uint64("seed", 1, "of the sample, `number`")
	also := flag.String("also", "overdue/monitor=overdue/e2e:Forward|Deferred|Session|Fault|Native|Innocent|Disturbed|Topic|Settled|Missed|Notif|Unnamed|Repeat|WithoutNames|Missing|GivenUp|TakenAway|Partitioned|Warning",
		"`package=package:tests`: more tests that are to notice mutants of the first")
	flag.Parse()
	err := run(ctx, flag.Args(), *sample, *seed, *also)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1)
	}
}

// What becomes of a mutant.
const (
	killed     = "killed"
	survived   = "survived"
	timedOut   = "timed out"
	notCovered = "not covered"
)

func run(ctx context.Context, patterns []string, sample int, seed uint64, also string) error {
	if len(patterns) == 0 {
		return errors.New("name the packages")
	}
	more, tests, _ := strings.Cut(also, ":")
	of, from, _ := strings.Cut(more, "=")
	fmt.Printf("seed %d, %d mutants of each package at most\n", seed, sample)
	for _, pattern := range patterns {
		began := time.Now()
		dir, err := os.MkdirTemp("", "overdue-mutate-")
		if err != nil {
			return err
		}
		p, err := load(ctx, pattern)
		if err == nil {
			err = p.build(ctx, dir)
		}
		var suites []*suite
		if err == nil {
			suites, err = p.suites(ctx, dir, of, from, tests)
		}
		if err == nil {
			err = p.judge(ctx, suites, sample, seed, began)
		}
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			return fmt.Errorf("%s: %w", pattern, err)
		}
	}
	return nil
}

// suites are the tests that are to notice mutants of p, after each has run alone.
func (p *pkg) suites(ctx context.Context, dir, of, from, tests string) ([]*suite, error) {
	own, err := p.suite(ctx, dir, p.path, ".")
	if err != nil {
		return nil, err
	}
	all := []*suite{own}
	if p.path == of {
		other, err := p.suite(ctx, dir, from, tests)
		if err != nil {
			return nil, err
		}
		all = append(all, other)
	}
	return all, nil
}

// judge runs the sample and prints what became of it.
func (p *pkg) judge(ctx context.Context, suites []*suite, sample int, seed uint64, began time.Time) error {
	chosen := slices.Clone(p.mutants)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:min(sample, len(chosen))]
	count := map[string]int{}
	for _, m := range chosen {
		fate := notCovered
		for _, s := range suites {
			if fate == killed || fate == timedOut || len(s.reached[m.id]) == 0 {
				continue
			}
			var err error
			if fate, err = s.try(ctx, m); err != nil {
				return err
			}
		}
		count[fate]++
		if fate == survived || fate == notCovered {
			fmt.Printf("  %-11s %s:%d %s\n", fate, filepath.Join(filepath.Base(p.dir), m.file), m.line, m.what)
		}
	}
	good := count[killed] + count[timedOut]
	fmt.Printf("%s: %d of %d mutants tried, %d killed, %d timed out, %d survived, %d not covered: %.0f %%, %.0f s\n", p.path, len(chosen), len(p.mutants),
		count[killed], count[timedOut], count[survived], count[notCovered], 100*float64(good)/float64(max(len(chosen), 1)), time.Since(began).Seconds())
	return nil
}
