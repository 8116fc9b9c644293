// SPDX-License-Identifier: Apache-2.0

// Command load measures a built overdue binary from outside: processes of their own, real
// TCP, the real SDK. It prints a table; bench/README.md says what the lines mean.
//
//	go build -o bin/overdue ./cmd/overdue && go run ./bench/load -overdue bin/overdue
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	binary := flag.String("overdue", "bin/overdue", "the binary to measure")
	seconds := flag.Int("seconds", 5, "how long each throughput is measured")
	outstanding := flag.Int("outstanding", 10_000, "deadlines outstanding when the lag is measured")
	waiting := flag.Int("waiting", 100_000, "messages waiting when the memory is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l := load{binary: *binary, span: time.Duration(*seconds) * time.Second, outstanding: *outstanding, waiting: *waiting}
	if err := l.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// load is one run of all measurements.
type load struct {
	binary      string
	span        time.Duration
	outstanding int
	waiting     int
}

func (l *load) run(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"start", l.starts}, {"sends", l.sends}, {"lag", l.lag}, {"memory", l.memory},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// row prints one measurement.
func row(name, format string, args ...any) {
	fmt.Printf("%-58s %s\n", name, fmt.Sprintf(format, args...))
}
