// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"

	"overdue/alert"
	"overdue/monitor/metrics"
	"overdue/monitor/notify"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// Two monitors that reach one namespace by two names speak of one event, whatever it is about.
func TestAnEventHasOneIDHoweverANamespaceIsSpelled(t *testing.T) {
	ids := func(namespace, entity string) (all []string) {
		w := &Worker{log: zap.NewNop(), metrics: &metrics.Metrics{}}
		e := newEntity(w, "orders", entity)
		for _, kind := range []string{"", alert.TypeIncomplete, alert.TypeNear} {
			m := &scheduler.Missed{Type: kind, SequenceNumber: 7, EnqueuedTime: noon}
			all = append(all, notify.EventOf(namespace, entity, &scheduler.Reference{}, m).ID)
		}
		return append(all, e.eventID(7, noon), e.forwardedID("m"))
	}
	want := ids("contoso.servicebus.windows.net", "orders")
	if want[0] != want[3] {
		t.Errorf("the id of an event is %s, and what is remembered of it %s", want[0], want[3])
	}
	for _, namespace := range []string{"CONTOSO.servicebus.windows.net:5671", "localhost:5672", "sb.internal"} {
		for _, entity := range []string{"orders", "Orders"} {
			for i, id := range ids(namespace, entity) {
				if id != want[i] {
					t.Errorf("%s, %s: id %d is %s, want %s", namespace, entity, i, id, want[i])
				}
			}
		}
	}
}
