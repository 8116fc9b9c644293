// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

const (
	batchMessages   = 100
	parallelSenders = 16
	// slicesPerRound is the number of slices that each broker has in a round.
	slicesPerRound = 5
)

// A durableBroker is a broker whose answer to a send says that the messages are on its disk.
type durableBroker struct {
	name, how string
	// start starts one that keeps its queue in dir.
	start func(ctx context.Context, o *overdueBuild, dir string) (*runningBroker, error)
}

// durableBrokers are all of them, in the order of the table, and ours without a disk.
var durableBrokers = []durableBroker{
	{"overdue", "broker.directory", startDurableOverdue},
	{"overdue-memory", "the same without a directory", startOverdueInMemory},
	{"rabbitmq", "a durable queue, persistent messages, publisher confirms", startConfirmingRabbitMQ},
	{"nats", "JetStream, a file store that always syncs", startSyncingNATS},
}

// A runningBroker is a durableBroker that has been started.
type runningBroker struct {
	version string
	// open opens a sender. Its function sends so many messages and waits until they are
	// acknowledged.
	open func(ctx context.Context, messages int) (send func(context.Context) error, err error)
	stop func() error
}

// A sendPlan is how sends are measured.
type sendPlan struct {
	rounds int
	span   time.Duration // of each broker in a round
	dir    string        // in which the brokers have theirs
	binary string        // overdue's; "": it is built
}

// A sendWork is what each broker gets.
type sendWork struct {
	name              string
	senders, messages int // messages at a time
}

var sendWorks = []sendWork{
	{"one-batches", 1, batchMessages},
	{"single", parallelSenders, 1},
}

// sendResults are what sends.json holds.
type sendResults struct {
	Rounds       int       `json:"rounds"`
	SpanMs       int64     `json:"spanMs"`
	PayloadBytes int       `json:"payloadBytes"`
	CPUs         int       `json:"cpus"`
	LoadAverage  string    `json:"loadAverage,omitempty"` // of the last minute before
	Peers        []sendRow `json:"peers"`
}

// A sendRow is the outcome of one broker.
type sendRow struct {
	Name    string              `json:"name"`
	How     string              `json:"how"`
	Version string              `json:"version"`
	Works   map[string]sendRate `json:"works"`
}

// A sendRate has medians of rounds.
type sendRate struct {
	MessagesPerSecond float64 `json:"messagesPerSecond"`
	// of Overdue's durable rate to this one in the same round, the lowest and the highest
	Ratio       float64    `json:"overdueRatio"`
	RatioSpread [2]float64 `json:"overdueRatioSpread"`
}

// A contestant is a broker in a measurement, with its rates by work, one for each round.
type contestant struct {
	durableBroker
	*runningBroker
	rates map[string][]float64
}

// measure starts all brokers and gives them the works in turns.
func (p *sendPlan) measure(ctx context.Context) (r *sendResults, err error) {
	r = &sendResults{
		Rounds:       p.rounds,
		SpanMs:       p.span.Milliseconds(),
		PayloadBytes: payloadBytes,
		CPUs:         runtime.NumCPU(),
		LoadAverage:  loadAverage(),
	}
	o := &overdueBuild{dir: p.dir, binary: p.binary}
	defer func() { err = errors.Join(err, o.remove()) }()
	var all []*contestant
	defer func() {
		for _, c := range all {
			err = errors.Join(err, c.stop())
		}
	}()
	for _, b := range durableBrokers {
		dir, err := os.MkdirTemp(p.dir, "overdue-peers-")
		if err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // what is left says so itself
		running, err := b.start(ctx, o, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		all = append(all, &contestant{b, running, map[string][]float64{}})
	}
	for _, w := range sendWorks {
		if err := p.play(ctx, w, all); err != nil {
			return nil, err
		}
	}
	for _, c := range all {
		row := sendRow{
			Name:    c.name,
			How:     c.how,
			Version: c.version,
			Works:   map[string]sendRate{},
		}
		for _, w := range sendWorks {
			row.Works[w.name] = rateOf(all[0].rates[w.name], c.rates[w.name])
		}
		r.Peers = append(r.Peers, row)
	}
	return r, nil
}

// rateOf compares the first broker with another, round by round.
func rateOf(first, other []float64) (s sendRate) {
	ratios := make([]float64, len(other))
	for i := range other {
		ratios[i] = first[i] / other[i]
	}
	s.MessagesPerSecond, _, _ = medianOf(other)
	s.Ratio, s.RatioSpread[0], s.RatioSpread[1] = medianOf(ratios)
	return s
}

// medianOf also returns the lowest and the highest.
func medianOf(values []float64) (median, lowest, highest float64) {
	sorted := slices.Sorted(slices.Values(values))
	median = (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
	return median, sorted[0], sorted[len(sorted)-1]
}

// play lets the brokers have a work in turns. Another one is the first in each round.
func (p *sendPlan) play(ctx context.Context, w sendWork, all []*contestant) error {
	senders := make([][]func(context.Context) error, len(all))
	for i, c := range all {
		for range w.senders {
			send, err := c.open(ctx, w.messages)
			if err != nil {
				return fmt.Errorf("%s: open a sender: %w", c.name, err)
			}
			senders[i] = append(senders[i], send)
		}
		if _, err := sendFor(ctx, senders[i], p.span/slicesPerRound); err != nil { // warms up
			return fmt.Errorf("%s: send: %w", c.name, err)
		}
	}
	for round := range p.rounds {
		fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", w.name, round+1, p.rounds)
		sent := make([]int, len(all))
		took := make([]time.Duration, len(all))
		for slice := range slicesPerRound {
			for i := range all {
				i = (i + round + slice) % len(all)
				began := time.Now()
				n, err := sendFor(ctx, senders[i], p.span/slicesPerRound)
				if err != nil {
					return fmt.Errorf("%s: send: %w", all[i].name, err)
				}
				sent[i] += n * w.messages
				took[i] += time.Since(began)
			}
		}
		for i, c := range all {
			c.rates[w.name] = append(c.rates[w.name], float64(sent[i])/took[i].Seconds())
		}
	}
	return nil
}

// sendFor lets the senders send side by side for a span, each at least once, and counts the sends.
func sendFor(ctx context.Context, senders []func(context.Context) error, span time.Duration) (int, error) {
	var sent atomic.Int64
	var wg sync.WaitGroup
	failures := make([]error, len(senders))
	began := time.Now()
	for i, send := range senders {
		wg.Go(func() {
			for more := true; more; more = time.Since(began) < span {
				if failures[i] = send(ctx); failures[i] != nil {
					return
				}
				sent.Add(1)
			}
		})
	}
	wg.Wait()
	return int(sent.Load()), errors.Join(failures...)
}

// writeTable prints a row for each broker.
func (r *sendResults) writeTable() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "peer")
	for _, k := range sendWorks {
		fmt.Fprintf(w, "\t%s/s\toverdue ÷ this\trange", k.name)
	}
	fmt.Fprintln(w, "\tversion")
	for _, row := range r.Peers {
		fmt.Fprint(w, row.Name)
		for _, k := range sendWorks {
			s := row.Works[k.name]
			fmt.Fprintf(w, "\t%.0f\t%.2f\t%.2f–%.2f", s.MessagesPerSecond, s.Ratio, s.RatioSpread[0], s.RatioSpread[1])
		}
		fmt.Fprintf(w, "\t%s\n", row.Version)
	}
	return w.Flush()
}
