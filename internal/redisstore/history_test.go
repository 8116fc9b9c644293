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
		must(t, a.Add(ctx, MissedRecord, []string{"one"}, time.Minute))
		must(t, b.Add(ctx, MissedRecord, []string{"two", "three"}, time.Minute))
		missed, err := a.Latest(ctx, MissedRecord, MostMissed)
		must(t, err)
		if diff := cmp.Diff([]string{"one", "two", "three"}, missed); diff != "" {
			t.Errorf("missed: %s", diff)
		}
	})
}

func TestTheHistoryOfTheFleetIsBoundedAndExpires(t *testing.T) {
	r := redistest.Start(t)
	ctx, h := t.Context(), open(t, "redis://"+r.Addr).History()
	var missed []string
	for i := range MostMissed + 10 {
		missed = append(missed, fmt.Sprint(i))
	}
	must(t, h.Add(ctx, MissedRecord, missed[:5], time.Hour))
	must(t, h.Add(ctx, MissedRecord, missed, time.Hour))
	got, err := h.Latest(ctx, MissedRecord, MostMissed)
	if err != nil || len(got) != MostMissed || got[0] != "10" {
		t.Errorf("%d missed, %v, want the latest %d", len(got), err, MostMissed)
	}
	if left := r.Must("PTTL", h.c.s.key("h", "missed")); left < ":3000000" || left > ":3600000\r\n" {
		t.Errorf("PTTL = %q, want an hour", left)
	}
	r.Must("SET", h.c.s.key("h", "missed"), "x")
	if _, err := h.Latest(ctx, MissedRecord, MostMissed); err == nil {
		t.Error("Missed of what is no list succeeded")
	}
}
