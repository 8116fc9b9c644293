// SPDX-License-Identifier: Apache-2.0

package monitorqueue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheFirstQueueKeepsItsName(t *testing.T) {
	want := []string{"overdue-monitor", "overdue-monitor.2", "overdue-monitor.3"}
	if diff := cmp.Diff(want, Of("overdue-monitor", 3).Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for _, n := range []int{-1, 0, 1} {
		if q := Of("m", n); q.Len() != 1 || q.For("orders") != "m" {
			t.Errorf("with %d queues, orders is on %q of %d", n, q.For("orders"), q.Len())
		}
	}
}

// Companions that another release cannot tell the place of are neither cancelled nor listed.
func TestEntitiesStayOnTheirQueuesInEveryRelease(t *testing.T) {
	got := map[string]int{}
	for _, entity := range []string{"orders", "payments", "events", "team/a/orders", "e-1", "e-2", "e-3"} {
		got[entity] = Of("m", 4).Index(entity)
	}
	want := map[string]int{"orders": 0, "payments": 2, "events": 3, "team/a/orders": 1, "e-1": 2, "e-2": 2, "e-3": 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("of four queues (-want +got):\n%s", diff)
	}
}

func TestSpellingDoesNotMoveAnEntity(t *testing.T) {
	q := Of("m", Most)
	for entity, other := range map[string]string{
		"orders": "ORDERS", "events": "Events/Subscriptions/Audit", "team/events": "team/EVENTS/subscriptions/a",
		"events/subscriptions/b": "events/Subscriptions/audit",
	} {
		if q.Index(entity) != q.Index(other) {
			t.Errorf("%s is on queue %d, and %s on %d", entity, q.Index(entity), other, q.Index(other))
		}
	}
}

func TestEntitiesAreSpreadAndFewOfThemMove(t *testing.T) {
	const entities = 2000
	for n := 2; n <= Most; n++ {
		count := make([]int, n)
		moved := 0
		for i := range entities {
			name := fmt.Sprintf("queue-%04d", i)
			at, before := Of("m", n).Index(name), Of("m", n-1).Index(name)
			count[at]++
			switch {
			case at == before:
			case at != n-1:
				t.Fatalf("with %d queues instead of %d, %s moves from %d to %d, want the new one or none", n, n-1, name, before, at)
			default:
				moved++
			}
		}
		fair := entities / n
		for at, c := range count {
			if c < fair*7/10 || c > fair*13/10 {
				t.Errorf("queue %d of %d has %d entities, want about %d", at, n, c, fair)
			}
		}
		if moved > fair*13/10 {
			t.Errorf("%d entities move to queue %d, want about %d", moved, n, fair)
		}
	}
}

func TestNamesOfMonitorQueuesAreKnown(t *testing.T) {
	q := Of("overdue-Monitor", 2)
	for _, name := range append(q.Names(), "OVERDUE-MONITOR", "overdue-monitor.16", "overdue-monitor.5") {
		if !q.Has(name) {
			t.Errorf("%s is not known as a monitor queue", name)
		}
	}
	for _, name := range []string{
		"", "orders", "overdue-monito", "overdue-monitor-2", "overdue-monitor.", "overdue-monitor.1", "overdue-monitor.02",
		"overdue-monitor.+2", "overdue-monitor.17", "overdue-monitor.2x", "overdue-monitor.2.3", "overdue-monitor.99999999999999999999",
	} {
		if q.Has(name) {
			t.Errorf("%q counts as a monitor queue", name)
		}
	}
	if Of("", 1).Has("") {
		t.Error("without a monitor queue the empty name counts as one")
	}
}

func BenchmarkIndex(b *testing.B) {
	q, entity := Of("m", 4), strings.Repeat("orders/", 5)
	for b.Loop() {
		q.Index(entity)
	}
}
