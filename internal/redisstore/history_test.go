// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/testing/redistest"
)

func TestHistoryOfTheFleet(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx := t.Context()
		a, b := connect().History(), connect().History()
		at := time.Now()
		must(t, a.Add(ctx, []string{"one"}, at.Add(-3*time.Hour), map[string]uint64{"orders": 2}, time.Minute))
		must(t, b.Add(ctx, []string{"two", "three"}, at, map[string]uint64{"orders": 3, "bills": 1}, time.Minute))
		must(t, a.Add(ctx, nil, at, map[string]uint64{"orders": 10}, time.Minute))
		must(t, a.Add(ctx, nil, at, nil, time.Minute))
		missed, err := a.Missed(ctx)
		must(t, err)
		if diff := cmp.Diff([]string{"one", "two", "three"}, missed); diff != "" {
			t.Errorf("missed: %s", diff)
		}
		for hours, want := range map[int]map[string]uint64{0: {"orders": 13, "bills": 1}, 5: {"orders": 15, "bills": 1}, 1 << 20: {"orders": 15, "bills": 1}} {
			got, err := b.Counts(ctx, at.Add(-time.Duration(hours)*time.Hour), at)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("counts of %d hours: %v %s", hours, err, diff)
			}
		}
	})
}

func TestTheHistoryOfTheFleetIsBoundedAndExpires(t *testing.T) {
	r := redistest.Start(t)
	s := open(t, "redis://"+r.Addr)
	ctx, h, at := t.Context(), s.History(), time.Now()
	var missed []string
	counts := map[string]uint64{}
	for i := range MostMissed + 10 {
		missed = append(missed, fmt.Sprint(i))
	}
	for i := range mostCounts + 10 {
		counts[fmt.Sprint(i)] = 1
	}
	must(t, h.Add(ctx, missed[:5], at, nil, time.Hour))
	must(t, h.Add(ctx, missed, at, counts, time.Hour))
	must(t, h.Add(ctx, nil, at, map[string]uint64{"late": 1}, time.Hour))
	got, err := h.Missed(ctx)
	if err != nil || len(got) != MostMissed || got[0] != "10" {
		t.Errorf("%d missed, %v, want the latest %d", len(got), err, MostMissed)
	}
	sums, err := h.Counts(ctx, at, at)
	if err != nil || len(sums) != mostCounts+1 || sums["late"] != 0 {
		t.Errorf("%d names, %v, want the first %d, and others", len(sums), err, mostCounts)
	}
	r.Must("HSET", h.hour(at), "0", "not a number")
	if sums, err := h.Counts(ctx, at, at); err != nil || sums["0"] != 0 {
		t.Errorf("what is no number counts %d, %v", sums["0"], err)
	}
	for _, key := range []string{h.missed(), h.hour(at)} {
		if left := r.Must("PTTL", key); left < ":3000000" || left > ":3600000\r\n" {
			t.Errorf("PTTL %s = %q, want an hour", key, left)
		}
		r.Must("SET", key, "x")
	}
	// A fleet that fills every hour can be read.
	full := func(hour time.Time) {
		t.Helper()
		counts := map[string]uint64{}
		for i := range mostCounts {
			counts[fmt.Sprint("name-", i)] = 1
		}
		must(t, h.Add(ctx, nil, hour, counts, time.Hour))
	}
	for i := range 2 * hoursAtOnce {
		full(at.Add(-time.Duration(i+1) * time.Hour))
	}
	sums, err = h.Counts(ctx, at.Add(-(2*hoursAtOnce)*time.Hour), at.Add(-time.Hour))
	if err != nil || sums["name-7"] != 2*hoursAtOnce {
		t.Errorf("%d counted in %d full hours, %v", sums["name-7"], 2*hoursAtOnce, err)
	}
	if _, err := h.Missed(ctx); err == nil {
		t.Error("Missed of what is no list succeeded")
	}
}
