// SPDX-License-Identifier: Apache-2.0

// Command broker measures the embedded broker: a process of its own behind its real endpoint, on
// TCP loopback. The clients are the Go SDK, a plain go-amqp client, and a client that costs next to
// nothing. In addition to the rate, it reports the processor time of a message on either side. On a
// shared machine the rate depends on the load of the machine, and the processor time on the code.
// The file test/bench/README.md says what the lines mean.
//
//	go run ./test/bench/broker
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"

	"overdue/test/bench/usage"
)

func main() {
	var b bench
	serve := flag.Bool("serve", false, "be the broker that is measured; what the command starts itself with")
	flag.DurationVar(&b.span, "span", 2*time.Second, "how long each rate of sending is measured")
	flag.IntVar(&b.messages, "messages", 40_000, "messages that are received to measure the rate of receiving")
	flag.IntVar(&b.deep, "deep", 1_000_000, "messages that wait in a deep queue, and that memory is measured by")
	flag.StringVar(&b.binary, "overdue", "", "the binary whose `overdue broker` is started for the time to ready; none: not measured")
	flag.StringVar(&b.profiles, "profiles", "", "a `directory` for profiles of the broker, two per line: processor and allocations")
	only := flag.String("only", "", "measure the lines that match this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *serve {
		err = serveBroker(ctx)
	} else if b.only, err = regexp.Compile(*only); err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "broker:", err)
		os.Exit(1)
	}
}

// bench is one run of all measurements.
type bench struct {
	span     time.Duration
	messages int
	deep     int
	binary   string
	profiles string
	only     *regexp.Regexp
	srv      *server
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.srv, err = startServer(ctx); err != nil {
		return err
	}
	defer func() {
		if stopped := b.srv.stop(); err == nil {
			err = stopped
		}
	}()
	fmt.Printf("%-58s %10s %10s %10s\n", "", "messages/s", "broker µs", "client µs")
	for _, part := range []func(context.Context) error{b.sends, b.receives, b.depth, b.memory, b.start} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// skips reports whether a line was not asked for.
func (b *bench) skips(name string) bool { return !b.only.MatchString(name) }

// rate prints a line about f, which returns how many messages it moved. The work of f before it
// calls begin does not count.
func (b *bench) rate(name string, f func(begin func()) (int, error)) error {
	if b.skips(name) {
		return nil
	}
	if err := b.srv.reset(); err != nil {
		return err
	}
	var began time.Time
	var broker, client time.Duration
	profiled := func() error { return nil }
	n, err := f(func() {
		broker, client, began = usage.CPU(b.srv.cmd.Process.Pid), usage.OwnCPU(), time.Now()
		if b.profiles != "" {
			profiled = usage.Profile(b.srv.ask, b.profiles, name, b.span)
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	took := time.Since(began)
	broker, client = usage.CPU(b.srv.cmd.Process.Pid)-broker, usage.OwnCPU()-client
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }
	fmt.Printf("%-58s %10.0f %10.2f %10.2f\n", name, float64(n)/took.Seconds(), each(broker), each(client))
	return profiled()
}
