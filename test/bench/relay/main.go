// SPDX-License-Identifier: Apache-2.0

// Command relay measures the cost of the AMQP endpoint. The same clients send straight to the
// embedded broker, through the endpoint to a queue that is not monitored, and through it to one
// that is. Broker, sidecar and clients are processes of their own, all on TCP loopback. Rounds are
// short and take turns, so that all ways see the same machine, and each printed figure is the
// median of its rounds. The file test/bench/README.md says what the lines mean.
//
//	go build -o bin/overdue ./cmd/overdue && go run ./test/bench/relay -overdue bin/overdue
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

func main() {
	var b bench
	flag.StringVar(&b.binary, "overdue", "bin/overdue", "the binary to measure")
	flag.BoolVar(&b.one, "run", false, "measure `overdue run`, where broker, endpoint and monitor are one process")
	flag.StringVar(&b.companions, "companions", "each", "what is written for monitored messages: each, slot or auto")
	flag.IntVar(&b.rounds, "rounds", 7, "rounds of each line, every one with a new broker and a new sidecar")
	flag.DurationVar(&b.span, "span", 500*time.Millisecond, "how long each way is measured in a round")
	flag.IntVar(&b.messages, "messages", 20_000, "messages that are received in a round")
	flag.IntVar(&b.sends, "sends", 2000, "sends of each way in a round, to measure latency")
	flag.StringVar(&b.profiles, "profiles", "", "a `directory` for profiles of the sidecar, by line and way: processor and allocations")
	to := flag.String("forward", "", "be a forwarder to this `address`; what the command starts itself with")
	ways := flag.String("ways", "", "measure the way direct and the ways that match this regular expression")
	only := flag.String("only", "", "measure the lines that match this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *to != "" {
		err = forward(*to)
	} else if b.only, err = regexp.Compile(*only); err == nil {
		if b.ways, err = regexp.Compile(*ways); err == nil {
			err = b.run(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

// bench is one run of all measurements.
type bench struct {
	binary     string
	one        bool
	companions string
	rounds     int
	span       time.Duration
	messages   int
	sends      int
	profiles   string
	only       *regexp.Regexp
	ways       *regexp.Regexp
}

func (b *bench) run(ctx context.Context) error {
	for _, part := range []func(context.Context) error{b.throughput, b.latency} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A way is how a message gets to the broker, and where from it gets there.
type way struct {
	name  string
	by    hop
	queue string
}

type hop int

const (
	byNone hop = iota
	byForwarder
	bySidecar
)

const (
	plainQueue   = "plain"
	watchedQueue = "watched" // the only one that is monitored
)

var (
	direct    = way{"direct", byNone, plainQueue}
	forwarded = way{"forwarded", byForwarder, plainQueue}
	relayed   = way{"relayed", bySidecar, plainQueue}
	monitored = way{"monitored", bySidecar, watchedQueue}
)
