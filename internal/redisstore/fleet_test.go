// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/testing/redistest"
)

func TestOneProcessNotifiesOfAnEvent(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx := t.Context()
		a, b := connect().Notified(), connect().Notified()
		begin := func(who *Notified, event string, wantMine, wantNotified bool) {
			t.Helper()
			mine, notified, err := who.Begin(ctx, event)
			if err != nil || mine != wantMine || notified != wantNotified {
				t.Errorf("Begin(%s) = mine %v, notified %v, %v; want %v, %v", event, mine, notified, err, wantMine, wantNotified)
			}
		}
		begin(a, "one", true, false)
		begin(a, "one", true, false) // its answer may have been lost
		begin(b, "one", false, false)
		begin(b, "two", true, false)
		must(t, a.End(ctx, "one", true))
		begin(b, "one", false, true)
		must(t, b.End(ctx, "two", false))
		begin(a, "two", true, false)
		must(t, b.End(ctx, "two", false)) // late: it is another's by now
		begin(b, "two", false, false)
	})
}

func TestViewOfTheFleet(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx := t.Context()
		a, b := connect().View(), connect().View()
		must(t, a.Report(ctx, map[string]int64{"orders": 3, "bills": 1}, map[string]int64{"orders": 2}))
		must(t, b.Report(ctx, map[string]int64{"orders": 4}, map[string]int64{"orders": 5, "bills": 1}))
		must(t, a.Report(ctx, map[string]int64{"orders": 1}, nil))
		got, err := b.Read(ctx)
		must(t, err)
		want := Totals{Monitors: 2, Outstanding: map[string]int64{"orders": 5}, Missed: map[string]int64{"orders": 7, "bills": 1}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("totals (-want +got):\n%s", diff)
		}
	})
}

func TestViewForgetsWhoIsGoneAndBoundsNames(t *testing.T) {
	r := redistest.Start(t)
	s := open(t, "redis://"+r.Addr)
	ctx, v := t.Context(), s.View()
	reports, counts := v.keys()
	r.Must("HSET", reports, "long gone", `1 {"orders": 9}`, "no report", "x", "no tally", "99999999999999 x")
	missed := map[string]int64{}
	for i := range 2 * maxNames {
		missed[fmt.Sprint("queue-", i)] = 1
	}
	must(t, v.Report(ctx, map[string]int64{"orders": 1}, missed))
	got, err := v.Read(ctx)
	must(t, err)
	if got.Monitors != 1 || got.Outstanding["orders"] != 1 || len(got.Missed) != maxNames+1 || got.Missed["other"] != maxNames {
		t.Errorf("%d monitors, %v outstanding, %d names, %d others; want 1, 1, %d, %d", got.Monitors, got.Outstanding, len(got.Missed), got.Missed["other"], maxNames+1, maxNames)
	}
	if left := r.Must("HLEN", reports); left != ":2\r\n" {
		t.Errorf("HLEN of the reports = %q, want the old ones to be gone", left)
	}
	r.Must("SET", counts, "x")
	if _, err := v.Read(ctx); err == nil {
		t.Error("Read of what is no count succeeded")
	}
}

func TestOneProcessSendsTheNotificationsOfAGroup(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx := t.Context()
		a, b := connect().Groups(), connect().Groups()
		claim := func(p *Groups, wantMine bool, wantNote string, want ...string) {
			t.Helper()
			mine, parts, note, err := p.Claim(ctx, "group")
			if got := slices.Sorted(maps.Keys(parts)); err != nil || mine != wantMine || note != wantNote || !slices.Equal(got, want) {
				t.Errorf("Claim = %v, %v, %q, %v; want %v, %v, %q", mine, got, note, err, wantMine, want, wantNote)
			}
		}
		must(t, a.Add(ctx, "group", "a1", []byte("x")))
		must(t, b.Add(ctx, "group", "b1", []byte("y")))
		claim(a, true, "", "a1", "b1")
		must(t, b.Add(ctx, "group", "b2", []byte("z")))
		claim(b, false, "")
		must(t, b.Release(ctx, "group", "not his"))
		claim(b, false, "")
		must(t, a.Release(ctx, "group", "noted"))
		claim(b, true, "noted", "a1", "b1", "b2")
		must(t, b.Release(ctx, "group", "noted again"))
		claim(a, true, "noted again", "a1", "b1", "b2")
	})
}
