// SPDX-License-Identifier: Apache-2.0

package slack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func TestACellHoldsWhatLiesInIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := time.Duration(rapid.Int64Range(0, int64(8*365*24*time.Hour)).Draw(t, "span"))
		c := cellOf(span)
		if lower(c) > span || upper(c) <= span {
			t.Fatalf("%v is in the cell from %v to %v", span, lower(c), upper(c))
		}
		if width := upper(c) - lower(c); width > time.Millisecond && float64(width) > 0.0625*float64(span) {
			t.Fatalf("the cell of %v is %v wide", span, width)
		}
	})
	for span, want := range map[time.Duration]int{-time.Hour: 0, 0: 0, 1<<63 - 1: cells - 1} {
		if got := cellOf(span); got != want {
			t.Errorf("cellOf(%v) = %d, want %d", span, got, want)
		}
	}
}

func TestPercentilesErrToTheSafeSide(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var spans []time.Duration
	c := Counts{}
	for range 1000 {
		span := time.Duration(rng.ExpFloat64() * float64(30*time.Second))
		spans = append(spans, span)
		c.Add(span, span, 1)
	}
	slices.Sort(spans)
	for _, tc := range []struct {
		what      string
		got, want time.Duration
		below     bool
	}{
		{"all but 1 in 100 reach", c.atLeast(leftOffset, 0.01), spans[10], true},
		{"half reach", c.atLeast(leftOffset, 0.5), spans[500], true},
		{"99 in 100 do not exceed", c.atMost(takenOffset, 0.99), spans[989], false},
		{"half do not exceed", c.atMost(takenOffset, 0.5), spans[499], false},
	} {
		off := float64(tc.got-tc.want) / float64(tc.want)
		if tc.below && (off > 0 || off < -0.07) || !tc.below && (off < 0 || off > 0.07) {
			t.Errorf("what %s is %v, want about %v", tc.what, tc.got, tc.want)
		}
	}
	if (Counts{}).atLeast(leftOffset, 0.5) != 0 || (Counts{}).atMost(takenOffset, 0.99) != 0 {
		t.Error("counts of nothing have spans")
	}
}

func TestCountsSurviveTheirEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Counts(rapid.MapOfN(rapid.Uint16Range(0, numbers-1), rapid.Uint64Range(1, 1<<60), 0, 20).Draw(t, "counts"))
		b := c.Append(nil)
		got, err := Parse(b)
		if diff := cmp.Diff(c, got); err != nil || diff != "" {
			t.Fatalf("Parse: %v, %s", err, diff)
		}
		if _, err := Parse(append(b, 0)); err == nil {
			t.Fatal("half a count was read")
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(Counts{lateOffset: 1, leftOffset + 3: 1, takenOffset + 500: 7}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err != nil {
			return
		}
		if again, err := Parse(c.Append(nil)); err != nil || !cmp.Equal(c, again) {
			t.Errorf("%+v is read back as %+v, %v", c, again, err)
		}
	})
}

func TestAMeterSumsUpByEntity(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMeter(r)
	for range 99 {
		m.Of("Orders").Settled(noon, noon.Add(2*time.Second), noon.Add(30*time.Second), 1)
	}
	before := m.Read()
	m.Of("orders").Settled(noon, noon.Add(40*time.Second), noon.Add(30*time.Second), 1)
	m.Of("invoices").Settled(noon, noon.Add(-time.Second), noon.Add(time.Minute), 1) // clocks differ a little
	all := m.Read()
	want := Summary{Entity: "Orders", Count: 100, Late: 1, LeftP1: 27648, LeftP50: 27648, TakenP50: 2048, TakenP99: 2048}
	if diff := cmp.Diff(want, all["Orders"].Summarize("Orders")); diff != "" {
		t.Errorf("summary of all: %s", diff)
	}
	more := all["Orders"].Since(before["Orders"])
	want = Summary{Entity: "Orders", Count: 1, Late: 1, TakenP50: 40960, TakenP99: 40960}
	if diff := cmp.Diff(want, more.Summarize("Orders")); diff != "" {
		t.Errorf("summary of the last: %s", diff)
	}
	merged := Counts{}
	merged.Merge(before["Orders"])
	merged.Merge(more)
	if diff := cmp.Diff(all["Orders"], merged); diff != "" {
		t.Errorf("merged: %s", diff)
	}
	if got := testutil.CollectAndCount(r, "overdue_deadline_slack_seconds", "overdue_settled_after_seconds"); got != 4 {
		t.Errorf("%d series, want 2 of each entity", got)
	}
}

func TestEntitiesAreBounded(t *testing.T) {
	m := NewMeter(nil)
	for i := range 2 * maxEntities {
		m.Of(fmt.Sprint("queue-", i)).Settled(noon, noon, noon.Add(time.Hour), 1)
	}
	all := m.Read()
	if len(all) != maxEntities+1 || all[others].Settled() != maxEntities {
		t.Errorf("%d entities, %d settlements of others; want %d and as many", len(all), all[others].Settled(), maxEntities)
	}
	(*Meter)(nil).Of("orders").Settled(noon, noon, noon, 1) // nobody measures
	if got := (*Meter)(nil).Read(); len(got) != 0 {
		t.Errorf("no meter has read %v", got)
	}
}

func TestAFastLinkIsSampled(t *testing.T) {
	m := NewMeter(nil)
	l := m.Link("orders")
	settled := func(n int, at time.Time) (measured int) {
		for range n {
			if w := l.Weight(); w > 0 {
				measured++
				l.Settled(at.Add(-time.Second), at, at.Add(time.Minute), w)
			}
		}
		return measured
	}
	first := settled(1, noon)
	if n := settled(sampleAfter+10*SampleEvery, noon); first != 1 || n != sampleAfter+10 {
		t.Errorf("%d are measured in a second, want %d and one in %d of the others", n, sampleAfter, SampleEvery)
	}
	if n := settled(2*SampleEvery, noon.Add(2*time.Second)); n != 1+SampleEvery {
		t.Errorf("%d are measured later, want the next sample and then each", n)
	}
	if got, want := m.Read()["orders"].Settled(), uint64(1+sampleAfter+10*SampleEvery+2*SampleEvery); got != want {
		t.Errorf("%d are counted, want %d", got, want)
	}
	none := (*Meter)(nil).Link("orders")
	if w := none.Weight(); w != 0 {
		t.Errorf("without a meter the weight is %d", w)
	}
	none.Settled(noon, noon, noon, 1)
}

func TestSpansAreCountedBetweenBounds(t *testing.T) {
	c := Counts{}
	c.Add(0, 0, 1)
	c.Add(99*time.Millisecond, 0, 2)
	c.Add(time.Minute, 0, 3)
	c.Add(365*24*time.Hour, 0, 4)
	got := c.LeftBetween([]time.Duration{100 * time.Millisecond, time.Second, time.Hour})
	if want := []uint64{3, 0, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("LeftBetween = %v, want %v", got, want)
	}
}
