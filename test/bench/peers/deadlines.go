// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	payloadBytes = 256 // as of `overdue bench expire`
	// giveUp is how long after the last deadline what has not fired counts as lost.
	giveUp = 90 * time.Second
	// quietPeriod is how long a measurement waits at its end for what fires twice.
	quietPeriod = time.Second
)

// deadlines are those of one measurement. Due and fired times are nanoseconds since 1970.
type deadlines struct {
	ttl   []time.Duration // of each, from when it is handed over
	due   []atomic.Int64  // 0: not handed over
	fired []atomic.Int64  // 0: not fired
	twice []atomic.Bool
	left  atomic.Int64
	done  chan struct{} // closed when all have fired

	began  time.Time
	loaded time.Duration // from the first that was handed over until the peer had all
}

// newDeadlines draws n times to live as `overdue bench expire` does: in whole milliseconds, uniform
// in the span, the same in every run.
func newDeadlines(n int, shortest, longest time.Duration) *deadlines {
	d := &deadlines{ttl: make([]time.Duration, n), due: make([]atomic.Int64, n),
		fired: make([]atomic.Int64, n), twice: make([]atomic.Bool, n), done: make(chan struct{})}
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range d.ttl {
		d.ttl[i] = (shortest + time.Duration(random.Int64N(int64(longest-shortest)+1))).Truncate(time.Millisecond)
	}
	d.left.Store(int64(n))
	return d
}

// handOver returns when the i-th is due, which counts from this call.
func (d *deadlines) handOver(i int) time.Time {
	due := time.Now().Add(d.ttl[i])
	d.due[i].Store(due.UnixNano())
	return due
}

// fire notes that the i-th has fired now.
func (d *deadlines) fire(i int) {
	now := time.Now().UnixNano()
	switch {
	case i < 0 || i >= len(d.fired):
	case !d.fired[i].CompareAndSwap(0, now):
		d.twice[i].Store(true)
	case d.left.Add(-1) == 0:
		close(d.done)
	}
}

// load calls hand with stretches of the deadlines from several goroutines side by side, and
// returns when the peer has all.
func (d *deadlines) load(ctx context.Context, workers, stretch int,
	hand func(ctx context.Context, worker, first, end int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var next atomic.Int64
	d.began = time.Now()
	failed := make(chan error, workers)
	for w := range workers {
		go func() {
			for {
				end := int(next.Add(int64(stretch)))
				first := end - stretch
				if first >= len(d.ttl) || ctx.Err() != nil {
					failed <- ctx.Err()
					return
				}
				if err := hand(ctx, w, first, min(end, len(d.ttl))); err != nil {
					cancel()
					failed <- fmt.Errorf("hand over deadlines: %w", err)
					return
				}
			}
		}()
	}
	var first error
	for range workers {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	d.loaded = time.Since(d.began)
	return first
}

// await returns when all have fired, or are lost.
func (d *deadlines) await(ctx context.Context) error {
	timeout := time.NewTimer(slices.Max(d.ttl) + giveUp)
	defer timeout.Stop()
	select {
	case <-d.done:
	case <-timeout.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-time.After(quietPeriod):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// percentiles are of lags, in milliseconds.
type percentiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// An outcome is a row of the table.
type outcome struct {
	Name       string      `json:"name"`
	How        string      `json:"how"`
	Version    string      `json:"version"`
	LagMs      percentiles `json:"lagMs"`
	Early      int         `json:"early"`
	EarliestMs float64     `json:"earliestMs"` // how long before its deadline the earliest has fired
	Lost       int         `json:"lost"`
	Twice      int         `json:"twice"`
	LoadMs     float64     `json:"loadMs"`
	// all deadlines were outstanding at a time
	LoadedBeforeFirstDue bool `json:"loadedBeforeFirstDue"`
}

// outcome adds up.
func (d *deadlines) outcome() (o outcome) {
	var lags []time.Duration
	for i := range d.fired {
		fired := d.fired[i].Load()
		if fired == 0 {
			o.Lost++
			continue
		}
		lags = append(lags, time.Duration(fired-d.due[i].Load()))
		if d.twice[i].Load() {
			o.Twice++
		}
	}
	slices.Sort(lags)
	for _, lag := range lags {
		if lag < 0 {
			o.Early++
		}
	}
	if o.Early > 0 {
		o.EarliestMs = milliseconds(-lags[0])
	}
	rank := func(p float64) float64 {
		if len(lags) == 0 {
			return 0
		}
		return milliseconds(lags[max(0, int(math.Ceil(p*float64(len(lags))))-1)])
	}
	o.LagMs.P50, o.LagMs.P99, o.LagMs.Max = rank(0.5), rank(0.99), rank(1)
	o.LoadMs = milliseconds(d.loaded)
	o.LoadedBeforeFirstDue = d.loaded < slices.Min(d.ttl)
	return o
}

// milliseconds is d to ten microseconds.
func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond).Microseconds()) / 1000
}

// payload is the body of the i-th message, and indexOf reads i from it, -1 if there is none.
func payload(i int) []byte {
	text := strconv.Itoa(i)
	return []byte(text + strings.Repeat(" ", payloadBytes-len(text)))
}

func indexOf(body []byte) int {
	i, err := strconv.Atoi(strings.TrimRight(string(body), " "))
	if err != nil {
		return -1
	}
	return i
}
