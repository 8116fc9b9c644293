// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// latency measures what one send at a time takes, the ways in turns: all of them are open at once,
// before one broker.
func (b *bench) latency(ctx context.Context) error {
	ways := []way{direct, relayed, monitored}
	titled := false
	for _, l := range []struct {
		name string
		open opener
	}{
		{"latency of one send: SDK", sdkSenders(1, 1, sendOne)},
		{"latency of one send: raw", rawSenders(1, 1, 0, plain, 1)},
	} {
		if !b.only.MatchString(l.name) {
			continue
		}
		if !titled {
			titled = true
			fmt.Printf("\n%-58s %10s %10s %10s\n", "", "p50 µs", "p99 µs", "added p50")
		}
		took := make([][]time.Duration, len(ways))
		for range b.rounds {
			if err := b.inTurns(ctx, l.open, ways, took); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		fmt.Println(l.name)
		us := func(way, percent int) float64 {
			return float64(took[way][len(took[way])*percent/100].Nanoseconds()) / 1000
		}
		for i, w := range ways {
			slices.Sort(took[i])
			fmt.Printf("    %-54s %10.1f %10.1f %10.1f\n", w.name, us(i, 50), us(i, 99), us(i, 50)-us(0, 50))
		}
	}
	return nil
}

// inTurns adds how long the sends of one round took, by way.
func (b *bench) inTurns(ctx context.Context, open opener, ways []way, took [][]time.Duration) (err error) {
	s, err := b.set(ctx, bySidecar)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	workers := make([]worker, len(ways))
	for i, w := range ways {
		c, err := open(ctx, s.address(w), w.queue)
		defer func() { err = errors.Join(err, c.close()) }()
		if err != nil {
			return err
		}
		workers[i] = c.workers[0]
	}
	for k := range b.sends + 100 {
		for i, send := range workers {
			began := time.Now()
			if _, err := send(); err != nil {
				return err
			}
			if k >= 100 { // the first open the links, and warm all up
				took[i] = append(took[i], time.Since(began))
			}
		}
	}
	return nil
}

// median is that of what f sees in all.
func median[T any](all []T, f func(T) float64) float64 {
	vs := make([]float64, len(all))
	for i, v := range all {
		vs[i] = f(v)
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}
