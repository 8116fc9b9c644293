// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"overdue/internal/testing/redistest"
)

// missedOf are missed deadlines of one entity.
func missedOf(entity string, n uint64) map[string]map[string]uint64 {
	return map[string]map[string]uint64{entity: {"missed": n}}
}

// goAway makes a process that reported look as if it had done so long ago.
func goAway(t *testing.T, r *redistest.Server, v *View, age time.Duration) {
	t.Helper()
	processes, _, _, _ := v.keys(time.Now())
	_, value, ok := strings.Cut(r.Must("HGET", processes, v.id), " ")
	if !ok {
		t.Fatal("the process has not reported")
	}
	r.Must("HSET", processes, v.id, fmt.Sprint(time.Now().Add(-age).UnixMilli(), " ", strings.TrimSpace(value)))
}

func TestViewOfTheFleet(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx := t.Context()
		a, b, c := connect().View(), connect().View(), connect().View()
		monitor := Process{Host: "a", Role: "monitor", Monitor: true, Version: "1", Started: time.Now().UTC(), Outstanding: map[string]int64{"orders": 3, "bills": 1}}
		must(t, a.Report(ctx, monitor, missedOf("orders", 2)))
		proxy := Process{Host: "b", Role: "proxy", NotReady: "the namespace does not answer"}
		must(t, b.Report(ctx, proxy, map[string]map[string]uint64{"orders": {"met": 7, "missed": 5}, "bills": {"unknown": 1}}))
		must(t, c.Report(ctx, Process{Host: "c"}, nil))
		must(t, c.Leave(ctx))
		monitor.Outstanding = map[string]int64{"orders": 1}
		must(t, a.Report(ctx, monitor, nil))
		got, err := b.Read(ctx)
		must(t, err)
		monitor.ID, proxy.ID, proxy.Own = a.id, b.id, true
		verdicts := map[string]map[string]uint64{"orders": {"met": 7, "missed": 7}, "bills": {"unknown": 1}}
		want := Fleet{
			Processes:   []Process{monitor, proxy},
			Outstanding: map[string]int64{"orders": 1},
			Today:       verdicts,
			Ever:        verdicts,
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Process{}, "Seen"), cmpopts.IgnoreFields(Fleet{}, "Since")); diff != "" {
			t.Errorf("fleet (-want +got):\n%s", diff)
		}
		for _, at := range []time.Time{got.Since, got.Processes[0].Seen, got.Processes[1].Seen} {
			if since := time.Since(at); since < -time.Second || since > time.Minute {
				t.Errorf("since %s and seen at %s and %s, want now", got.Since, got.Processes[0].Seen, got.Processes[1].Seen)
			}
		}
		if n := got.Processes[0].TotalOutstanding(); got.Monitors() != 1 || n != 1 {
			t.Errorf("%d monitors, %d outstanding, want 1 and 1", got.Monitors(), n)
		}
	})
}

func TestAProcessThatIsGoneIsShown(t *testing.T) {
	r := redistest.Start(t)
	s := open(t, "redis://"+r.Addr)
	ctx := t.Context()
	process := func(host string) *View {
		v := s.View()
		must(t, v.Report(ctx, Process{Host: host, Role: "monitor", Monitor: true, Started: time.Now(), Outstanding: map[string]int64{"orders": 1}}, missedOf("orders", 1)))
		return v
	}
	want := func(want ...string) Fleet {
		t.Helper()
		f, err := s.View().Read(ctx)
		must(t, err)
		var got []string
		for _, p := range f.Processes {
			state := "there"
			if p.Gone {
				state = "gone since " + time.Since(p.Seen).Round(time.Minute).String()
			}
			got = append(got, p.Host+" "+state)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("processes (-want +got):\n%s", diff)
		}
		return f
	}
	_, b, long := process("a"), process("b"), process("long gone")
	goAway(t, r, b, time.Hour)
	goAway(t, r, long, 2*goneLife)
	for range 2 { // the first reading moves them
		f := want("a there", "b gone since 1h0m0s")
		if f.Monitors() != 1 || f.Outstanding["orders"] != 1 || f.Ever["orders"]["missed"] != 3 {
			t.Errorf("%d monitors, %d outstanding, %d missed; want 1, 1 and what all have counted", f.Monitors(), f.Outstanding["orders"], f.Ever["orders"]["missed"])
		}
	}
	must(t, b.Report(ctx, Process{Host: "b", Role: "monitor"}, nil)) // it was frozen
	want("a there", "b there")
	goAway(t, r, b, time.Hour)
	want("a there", "b gone since 1h0m0s")
	process("b") // started again
	want("a there", "b there")
}

func TestViewIsBounded(t *testing.T) {
	r := redistest.Start(t)
	s := open(t, "redis://"+r.Addr)
	ctx, v := t.Context(), s.View()
	processes, _, _, ever := v.keys(time.Now())
	r.Must("HSET", processes, "no report", "x", "no tally", "99999999999999 x")
	for i := range mostGone + 50 {
		text, err := json.Marshal(Process{ID: fmt.Sprint(i), Host: fmt.Sprint(i)})
		must(t, err)
		r.Must("HSET", processes, fmt.Sprint("gone-", i), fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli(), " ", string(text)))
	}
	missed, outstanding := map[string]map[string]uint64{}, map[string]int64{}
	for i := range maxNames + 1000 {
		missed[fmt.Sprint("queue-", i)] = map[string]uint64{"missed": 1}
		outstanding[fmt.Sprint("queue-", i)] = int64(i)
	}
	must(t, v.Report(ctx, Process{Host: "here", Outstanding: outstanding}, missed))
	got, err := v.Read(ctx)
	must(t, err)
	if n := len(got.Processes); got.Processes[0].Host != "here" || n < mostGone || n > mostGone+1 {
		t.Errorf("%d processes, the first %s; want the one that is there and up to %d that are gone", n, got.Processes[0].Host, mostGone)
	}
	if len(got.Ever) != maxNames+1 || got.Ever["other"]["missed"] != 1000 {
		t.Errorf("%d names, %d others; want %d, 1000", len(got.Ever), got.Ever["other"]["missed"], maxNames+1)
	}
	last := fmt.Sprint("queue-", maxNames+999)
	if len(got.Outstanding) != maxOutstanding+1 || got.Outstanding[last] != outstanding[last] || got.Outstanding[otherEntities] == 0 {
		t.Errorf("%d entities with outstanding deadlines, want the %d with the most and the others", len(got.Outstanding), maxOutstanding)
	}
	if left := r.Must("HLEN", processes); left != ":2\r\n" {
		t.Errorf("HLEN of the processes = %q, want those that are gone to be moved", left)
	}
	r.Must("SET", ever, "x")
	if _, err := v.Read(ctx); err == nil {
		t.Error("Read of what is no count succeeded")
	}
}
