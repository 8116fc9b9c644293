// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"
	"time"
)

func TestEveryPeerFiresAThousandDeadlines(t *testing.T) {
	p := plan{n: 1000, shortest: time.Second, longest: 2 * time.Second}
	for _, one := range peers {
		t.Run(one.name, func(t *testing.T) {
			rows, err := p.measure(t.Context(), one)
			if errors.Is(err, errMissing) {
				t.Skipf("NOT RUN: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range rows {
				if o.Lost > 0 || o.Twice > 0 || o.Version == "" || o.LagMs.P50 > o.LagMs.P99 || o.LagMs.P99 > o.LagMs.Max {
					t.Errorf("%+v, want every deadline fired once, and a version", o)
				}
			}
		})
	}
}

func TestEveryDurableBrokerAcknowledgesSends(t *testing.T) {
	p := sendPlan{rounds: 1, span: 50 * time.Millisecond, dir: t.TempDir()}
	r, err := p.measure(t.Context())
	if errors.Is(err, errMissing) {
		t.Skipf("NOT RUN: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Peers {
		for work, rate := range row.Works {
			if rate.MessagesPerSecond <= 0 || rate.Ratio <= 0 || row.Version == "" {
				t.Errorf("%s, %s: %+v of %q, want a rate and a version", row.Name, work, rate, row.Version)
			}
		}
	}
}

func TestRatiosOfSendsAreOfOneRound(t *testing.T) {
	got := rateOf([]float64{100, 10, 30}, []float64{50, 20, 10})
	if want := (sendRate{MessagesPerSecond: 20, Ratio: 2, RatioSpread: [2]float64{0.5, 3}}); got != want {
		t.Errorf("rateOf = %+v, want %+v", got, want)
	}
}

func TestADeadlineFiresEarlyOrTwiceOrNever(t *testing.T) {
	d := newDeadlines(4, time.Hour, time.Hour)
	for i := range 3 {
		d.handOver(i)
	}
	d.due[1].Store(1) // long ago
	for _, i := range []int{0, 1, 2, 2, -1, 7} {
		d.fire(i)
	}
	o := d.outcome()
	if o.Early != 2 || o.Twice != 1 || o.Lost != 1 || o.EarliestMs < 3_500_000 {
		t.Errorf("%+v, want two early by an hour, one of them twice, and one lost", o)
	}
}
