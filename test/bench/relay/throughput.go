// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
	"overdue/test/bench/usage"
)

// A line is one kind of client, which is measured on each of its ways.
type line struct {
	name string
	ways []way
	open opener
	// fill puts messages into the queue that the clients then take out, until they have all of them;
	// nil for clients that send, for as long as a span.
	fill func(address, queue string) (int, error)
}

func (b *bench) lines() []line {
	sending := func() []way { return []way{direct, forwarded, relayed, monitored} }
	receiving := func() []way { return []way{direct, forwarded, relayed, monitored} }
	return []line{
		{"send: SDK, 16 senders on 1 connection", sending(), sdkSenders(senders, 1, sendOne), nil},
		{"send: SDK, 16 senders on 16 connections", sending(), sdkSenders(senders, senders, sendOne), nil},
		{"send: raw, 16 connections, 1 under way on each", sending(), rawSenders(senders, 1, 0, plain, 1), nil},
		{"send: raw, 16 connections, 64 under way on each", sending(), rawSenders(senders, 64, 0, plain, 1), nil},
		{"batches of 100: SDK, 16 senders on 1 connection", sending(), sdkSenders(senders, 1, sendBatch), nil},
		{"batches of 100: SDK, 16 senders on 16 connections", sending(), sdkSenders(senders, senders, sendBatch), nil},
		{"batches of 100: raw, 16 connections, 1 under way on each", sending(), rawSenders(senders, 1, amqp.BatchMessageFormat, batch, perBatch), nil},
		{"receive and complete: SDK, 1 receiver", receiving(), b.sdkReceivers(1), b.fill},
		{"receive and complete: SDK, 16 receivers on 16 connections", receiving(), b.sdkReceivers(senders), b.fill},
		{"receive and complete: raw, 1 connection", receiving(), b.rawReceiver, b.fillMore},
	}
}

// A measure is what was measured of a line on one way, of one round.
type measure struct {
	rate                    float64 // messages per second
	client, between, broker float64 // microseconds of processor time per message
	mallocs                 float64 // of what stands between, per message
}

// cpu is what a message costs all processes together.
func (m measure) cpu() float64 { return m.client + m.between + m.broker }

// throughput measures all lines.
func (b *bench) throughput(ctx context.Context) error {
	titled := false
	for _, l := range b.lines() {
		if !b.only.MatchString(l.name) {
			continue
		}
		if !titled {
			titled = true
			fmt.Printf("%-58s %10s %6s %6s %10s %10s %10s %7s\n", "", "messages/s", "ratio", "cost", "client µs", "between µs", "broker µs", "allocs")
		}
		l.ways = slices.DeleteFunc(l.ways, func(w way) bool { return w != direct && !b.ways.MatchString(w.name) })
		rounds := make([][]measure, len(l.ways))
		for i := range b.rounds {
			for j := range l.ways {
				at := (i + j) % len(l.ways) // who is first differs
				m, err := b.measure(ctx, l, l.ways[at])
				if err != nil {
					return fmt.Errorf("%s, %s: %w", l.name, l.ways[at].name, err)
				}
				rounds[at] = append(rounds[at], m)
			}
		}
		b.report(l, rounds)
	}
	return nil
}

func (b *bench) report(l line, rounds [][]measure) {
	fmt.Println(l.name)
	of := func(way int, f func(measure) float64) float64 {
		return median(rounds[way], f)
	}
	for i, w := range l.ways {
		ratios := make([]float64, b.rounds)
		for k := range ratios {
			ratios[k] = rounds[i][k].rate / rounds[0][k].rate
		}
		fmt.Printf("    %-54s %10.0f %6.2f %6.2f %10.2f %10.2f %10.2f %7.2f\n", w.name,
			of(i, func(m measure) float64 { return m.rate }), median(ratios, func(r float64) float64 { return r }), of(0, measure.cpu)/of(i, measure.cpu),
			of(i, func(m measure) float64 { return m.client }), of(i, func(m measure) float64 { return m.between }),
			of(i, func(m measure) float64 { return m.broker }), of(i, func(m measure) float64 { return m.mallocs }))
	}
}

// measure does one round on one way.
func (b *bench) measure(ctx context.Context, l line, w way) (m measure, err error) {
	s, err := b.set(ctx, w.by)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	left := 0
	if l.fill != nil {
		if left, err = l.fill(s.broker.broker, w.queue); err != nil {
			return m, err
		}
	}
	c, err := l.open(ctx, s.address(w), w.queue)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return m, err
	}
	if l.fill == nil {
		if _, err := together(c.workers, 0, b.span/5); err != nil { // opens the links, and warms all up
			return m, err
		}
	}
	wait := func() error { return nil }
	if b.profiles != "" && w.by == bySidecar {
		wait = usage.Profile(s.sidecar.ask, b.profiles, l.name+"-"+w.name, b.span)
	}
	before, err := s.spent(w)
	if err != nil {
		return m, err
	}
	client, began := usage.OwnCPU(), time.Now()
	n, err := together(c.workers, left, b.span)
	if err != nil {
		return m, err
	}
	took := time.Since(began)
	client = usage.OwnCPU() - client
	after, err := s.spent(w)
	if err != nil {
		return m, err
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }
	m = measure{rate: float64(n) / took.Seconds(), client: each(client), broker: each(after[0].cpu - before[0].cpu)}
	m.between = each(after[1].cpu - before[1].cpu)
	m.mallocs = (after[1].mallocs - before[1].mallocs) / float64(n)
	return m, wait()
}

// spent is what the broker and what stands between have used so far.
func (s scene) spent(w way) (u [2]spent, err error) {
	for i, p := range []*process{s.broker, s.between(w)} {
		if p == nil || i > 0 && p == s.broker { // which counts once
			continue
		}
		var failed error
		u[i], failed = p.spent()
		err = errors.Join(err, failed)
	}
	return u, err
}

// together has the workers work side by side until they have done so many messages, or for a span
// when left is 0.
func together(workers []worker, left int, span time.Duration) (int, error) {
	var n atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(workers))
	began := time.Now()
	for i, work := range workers {
		wg.Go(func() {
			for !failed.Load() && (left > 0 && int(n.Load()) < left || left == 0 && time.Since(began) < span) {
				k, err := work()
				if err != nil {
					failed.Store(true)
					errs[i] = err
				}
				n.Add(int64(k))
				if left > 0 && k == 0 {
					return // there is nothing left to ask for
				}
			}
		})
	}
	wg.Wait()
	return int(n.Load()), errors.Join(errs...)
}
