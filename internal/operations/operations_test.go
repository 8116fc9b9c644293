// SPDX-License-Identifier: Apache-2.0

package operations

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestNamesFromOutsideAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	d := NewDeadlines(registry)
	for i := range 2 * maxEntities {
		d.Add(fmt.Sprint("queue-", i), Met, 1)
	}
	d.Add("queue-0", Met, 2)
	if got := testutil.CollectAndCount(d.vec); got != maxEntities+1 {
		t.Errorf("%d series, want %d and one for all others", got, maxEntities)
	}
	if got := testutil.ToFloat64(d.vec.WithLabelValues(otherEntities, Met)); got != maxEntities {
		t.Errorf("%v counted for the others, want %d", got, maxEntities)
	}
	if got := testutil.ToFloat64(d.vec.WithLabelValues("queue-0", Met)); got != 3 {
		t.Errorf("%v counted for queue-0, want 3", got)
	}
}

// The outcome of a canary, and of any message on its queue, is no outcome of a deadline.
func TestCanariesAreCountedApart(t *testing.T) {
	registry := prometheus.NewRegistry()
	d := NewDeadlines(registry)
	d.SetCanary("birds")
	d.Show("birds", Met, "missed", "unknown")
	for _, verdict := range []string{Met, "missed", "unknown"} {
		d.Add("Birds", verdict, 1)
	}
	d.Add("orders", "missed", 1)
	const want = `
# HELP overdue_deadlines_total ` + help + `
# TYPE overdue_deadlines_total counter
overdue_deadlines_total{entity="birds",verdict="canary"} 3
overdue_deadlines_total{entity="orders",verdict="missed"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestNothingIsCountedByNobody(t *testing.T) {
	var c *Counter
	c.Add(Peek, 1)
	var d *Deadlines
	d.Add("orders", Met, 1)
	counter := New(prometheus.NewRegistry())
	counter.Add(Peek, 2)
	counter.Add(Peek, 0)
	if got := testutil.ToFloat64(counter.vec.WithLabelValues(Peek)); got != 2 {
		t.Errorf("%v peeks, want 2", got)
	}
}
