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
