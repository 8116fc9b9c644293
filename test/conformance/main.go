// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// exitNoLoopback is how the inner process of isolate says that it has no rights.
const exitNoLoopback = 77

// options are what the command line says.
type options struct {
	run     *regexp.Regexp // live tests to run, by name
	ways    []way          // to the namespace
	lanes   int            // tests that run at the same time, each way
	timeout time.Duration  // for the whole run, without building
	verbose bool           // print the output of tests that pass, too
	list    bool           // only name the live tests
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	var err error
	if len(args) > 0 && args[0] == injectorCommand {
		err = runInjector(ctx, args[1:])
	} else {
		err = run(ctx, args, os.Stdout)
	}
	if err == nil {
		return
	}
	if !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	stop()
	os.Exit(1)
}

// errFailed means that the report already shows the failures.
var errFailed = errors.New("live tests failed")

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	opt, dir, err := parse(args)
	if err != nil {
		return err
	}
	if dir != "" { // inside the network namespace that isolate made
		if err := raiseLoopback(); err != nil {
			return err
		}
		return runLive(ctx, opt, dir, out)
	}
	dir, err = os.MkdirTemp("", "overdue-conformance-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := prepare(ctx, dir); err != nil {
		return err
	}
	if opt.list {
		return list(dir, opt, out)
	}
	entered, why := isolate(ctx, append([]string{"-dir", dir}, args...), out)
	if entered {
		return why
	}
	if err := canBind(); err != nil {
		return fmt.Errorf("the live tests dial ports 443 and 5671 of loopback addresses, which takes root or a network namespace: %w; %w", why, err)
	}
	return runLive(ctx, opt, dir, out)
}

func parse(args []string) (options, string, error) {
	var opt options
	var pattern, dir, only string
	fs := flag.NewFlagSet("conformance", flag.ContinueOnError)
	fs.StringVar(&pattern, "run", "", "run only the live tests that match this regular `expression`")
	fs.StringVar(&only, "way", "", "go only this `way`: "+string(wayDirect)+" or "+string(wayRelay))
	fs.IntVar(&opt.lanes, "lanes", 4, "how many tests run at the same time, each way and each lane with brokers of its own")
	fs.DurationVar(&opt.timeout, "timeout", 20*time.Minute, "bound of the whole run, without building")
	fs.BoolVar(&opt.verbose, "v", false, "print the output of tests that pass, too")
	fs.BoolVar(&opt.list, "list", false, "name the live tests and stop")
	fs.StringVar(&dir, "dir", "", "a prepared `folder`; for the command's own use")
	if err := fs.Parse(args); err != nil {
		return options{}, "", err
	}
	if fs.NArg() > 0 {
		return options{}, "", fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if opt.lanes < 1 || opt.lanes > maxLanes {
		return options{}, "", fmt.Errorf("-lanes is %d; it must be between 1 and %d", opt.lanes, maxLanes)
	}
	switch way(only) {
	case "":
		opt.ways = []way{wayDirect, wayRelay}
	case wayDirect, wayRelay:
		opt.ways = []way{way(only)}
	default:
		return options{}, "", fmt.Errorf("-way is %q; it must be %s or %s", only, wayDirect, wayRelay)
	}
	var err error
	if opt.run, err = regexp.Compile(pattern); err != nil {
		return options{}, "", fmt.Errorf("-run: %w", err)
	}
	return opt, dir, nil
}

func list(dir string, opt options, out io.Writer) error {
	tests, err := readPlan(dir)
	if err != nil {
		return err
	}
	for _, t := range tests {
		if opt.run.MatchString(t.Name) {
			fmt.Fprintln(out, t)
		}
	}
	return nil
}
