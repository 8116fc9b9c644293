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
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// meters returns a meter, and what it has counted.
func meters() (m *Meter, read func() map[string]Settlements) {
	r := prometheus.NewRegistry()
	return NewMeter(r), func() map[string]Settlements {
		families, err := r.Gather()
		if err != nil {
			panic(err) // a meter registers nothing that contradicts itself
		}
		return Read(families)
	}
}

// settle counts one settlement.
func (m *Meter) settle(entity string, enqueued, settled, deadline time.Time) {
	m.Link(entity).Settled(enqueued, settled, deadline, 1)
}

func TestABucketHoldsWhatLiesInIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := time.Duration(rapid.Int64Range(1, int64(8*365*24*time.Hour)).Draw(t, "span"))
		m, read := meters()
		m.settle("orders", noon, noon.Add(span), noon.Add(2*span))
		left := read()["orders"].Left
		for number := range left {
			// The bounds are exact to the last digits of a float64.
			if slop := span / 1e9; lower(number) > span+slop || upper(number) < span-slop {
				t.Fatalf("%v is in the bucket from %v to %v", span, lower(number), upper(number))
			}
			if width := upper(number) - lower(number); float64(width) > 0.0625*float64(span)+1 {
				t.Fatalf("the bucket of %v is %v wide", span, width)
			}
		}
		if left.sum() != 1 {
			t.Fatalf("%d are counted, want one", left.sum())
		}
	})
}

func TestPercentilesErrToTheSafeSide(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var spans []time.Duration
	m, read := meters()
	for range 1000 {
		span := time.Duration(rng.ExpFloat64() * float64(30*time.Second))
		spans = append(spans, span)
		m.settle("orders", noon, noon.Add(span), noon.Add(2*span))
	}
	c := read()["orders"]
	slices.Sort(spans)
	for _, tc := range []struct {
		what      string
		got, want time.Duration
		below     bool
	}{
		{"all but 1 in 100 reach", c.Left.atLeast(0.01), spans[10], true},
		{"half reach", c.Left.atLeast(0.5), spans[500], true},
		{"99 in 100 do not exceed", c.Taken.atMost(0.99), spans[989], false},
		{"half do not exceed", c.Taken.atMost(0.5), spans[499], false},
	} {
		off := float64(tc.got-tc.want) / float64(tc.want)
		if tc.below && (off > 0 || off < -0.07) || !tc.below && (off < 0 || off > 0.07) {
			t.Errorf("what %s is %v, want about %v", tc.what, tc.got, tc.want)
		}
	}
	if (Buckets{}).atLeast(0.5) != 0 || (Buckets{}).atMost(0.99) != 0 {
		t.Error("counts of nothing have spans")
	}
}

func TestCountsSurviveTheirEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Buckets(rapid.MapOfN(rapid.Int16(), rapid.Uint64Range(1, 1<<60), 0, 20).Draw(t, "counts"))
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
	f.Add(Buckets{zeroBucket: 1, -3: 1, 500: 7}.Append(nil))
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
	m, read := meters()
	for range 99 {
		m.settle("Orders", noon, noon.Add(2*time.Second), noon.Add(30*time.Second))
	}
	before := read()
	m.settle("orders", noon, noon.Add(40*time.Second), noon.Add(30*time.Second))
	m.settle("invoices", noon, noon.Add(-time.Second), noon.Add(time.Minute)) // clocks differ a little
	all := read()
	want := Summary{Entity: "Orders", Count: 100, Late: 1, LeftP1: 26908, LeftP50: 26908, TakenP50: 2000, TakenP99: 2000}
	if diff := cmp.Diff(want, all["Orders"].Summarize("Orders")); diff != "" {
		t.Errorf("summary of all: %s", diff)
	}
	more := Settlements{all["Orders"].Left.Since(before["Orders"].Left), all["Orders"].Taken.Since(before["Orders"].Taken)}
	want = Summary{Entity: "Orders", Count: 1, Late: 1, TakenP50: 41498, TakenP99: 41498}
	if diff := cmp.Diff(want, more.Summarize("Orders")); diff != "" {
		t.Errorf("summary of the last: %s", diff)
	}
	merged := Buckets{}
	merged.Merge(before["Orders"].Left)
	merged.Merge(more.Left)
	if diff := cmp.Diff(all["Orders"].Left, merged); diff != "" {
		t.Errorf("merged: %s", diff)
	}
	if len(all) != 2 {
		t.Errorf("%d entities, want 2", len(all))
	}
}

// A rule asks how many have used more than 0.9 of their time.
func TestTheUsedShareIsThatOfTheTimeToTheDeadline(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMeter(r)
	for _, settled := range []time.Duration{-time.Second, 5 * time.Second, 9 * time.Second, 9100 * time.Millisecond, 10 * time.Second, 11 * time.Second} {
		m.settle("orders", noon, noon.Add(settled), noon.Add(10*time.Second))
	}
	m.settle("orders", noon, noon, noon)                                  // no time, and none was used
	m.settle("orders", noon, noon.Add(time.Second), noon.Add(-time.Hour)) // sent after its deadline
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == usedMetric })
	got := map[float64]uint64{}
	for _, b := range families[i].GetMetric()[0].GetHistogram().GetBucket() {
		got[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	for bound, want := range map[float64]uint64{.1: 2, .5: 3, .9: 4, .95: 5, 1: 6, 2: 7} {
		if got[bound] != want {
			t.Errorf("%d have used up to %v, want %d", got[bound], bound, want)
		}
	}
}

func TestEntitiesAreBounded(t *testing.T) {
	m, read := meters()
	for i := range 2 * maxEntities {
		m.settle(fmt.Sprint("queue-", i), noon, noon, noon.Add(time.Hour))
	}
	all := read()
	if len(all) != maxEntities+1 || all[others].Left.sum() != maxEntities {
		t.Errorf("%d entities, %d settlements of others; want %d and as many", len(all), all[others].Left.sum(), maxEntities)
	}
}

func TestAFastLinkIsSampled(t *testing.T) {
	m, read := meters()
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
	if got, want := read()["orders"].Left.sum(), uint64(1+sampleAfter+10*SampleEvery+2*SampleEvery); got != want {
		t.Errorf("%d are counted, want %d", got, want)
	}
	none := (*Meter)(nil).Link("orders")
	if w := none.Weight(); w != 0 {
		t.Errorf("without a meter the weight is %d", w)
	}
	none.Settled(noon, noon, noon, 1)
}

func TestSpansAreCountedBetweenBounds(t *testing.T) {
	m, read := meters()
	for left, n := range map[time.Duration]uint64{0: 1, 99 * time.Millisecond: 2, time.Minute: 3, 365 * 24 * time.Hour: 4} {
		m.Link("orders").Settled(noon, noon, noon.Add(left), n)
	}
	got := read()["orders"].Left.Between([]time.Duration{100 * time.Millisecond, time.Second, time.Hour})
	if want := []uint64{3, 0, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("Between = %v, want %v", got, want)
	}
}
