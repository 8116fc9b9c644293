// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/monitor/metrics"
	"overdue/monitor/nudge"
	"overdue/monitor/search"
)

// withQueue has act see the queue orders of a broker, in which n messages wait that are numbered
// from 1 on.
func withQueue(t *testing.T, n int, act func(t *testing.T, e *entity, r *link.Receiver, counted func(operation string) float64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate, c.Expiry = false, queue.Lazy
			c.Queues = []broker.QueueConfig{{Name: "orders"}}
		})
		sender, err := ns.Client(t).NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			id := fmt.Sprint("m-", i+1)
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{MessageID: &id}, nil); err != nil {
				t.Fatal(err)
			}
		}
		links := ns.Links(t)
		r, err := links.Receiver(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		w := &Worker{metrics: metrics.New(registry, operations.New(registry), nil)}
		e := &entity{w: w, key: "orders", name: "orders"}
		e.work = search.View{Links: links, Path: "orders", Operations: w.metrics.Operations, Seen: &e.seen}
		t.Cleanup(func() { e.work.Close(t.Context()) })
		act(t, e, r, func(operation string) (sum float64) {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if l.GetName() == "operation" && l.GetValue() == operation {
							sum += m.GetCounter().GetValue()
						}
					}
				}
			}
			return sum
		})
	})
}

// What a nudge costs is counted, with what it gives back.
func TestANudgeCountsWhatItGivesBack(t *testing.T) {
	withQueue(t, 1, func(t *testing.T, e *entity, r *link.Receiver, counted func(string) float64) {
		first, err := nudge.Over(t.Context(), r, e.w.metrics.Operations, func() {})
		if err != nil || first.SequenceNumber != 1 {
			t.Fatalf("nudge = %d, %v, want 1", first.SequenceNumber, err)
		}
		if nudges, releases := counted(operations.Nudge), counted(operations.Release); nudges != 1 || releases != 1 {
			t.Errorf("%v nudges and %v releases are counted, want one each", nudges, releases)
		}
	})
}

// Where numbers say nothing of the time, everything is read until what is sought is found, by
// its number or by its id.
func TestReadAllFindsByNumber(t *testing.T) {
	withQueue(t, 10, func(t *testing.T, e *entity, _ *link.Receiver, _ func(string) float64) {
		page, err := e.work.Peek(t.Context(), 0, 10)
		if err != nil || len(page) != 10 {
			t.Fatalf("%d messages wait, %v, want 10", len(page), err)
		}
		byNumber := &search.Want{Identity: search.IdentityOf(page[6])}
		nowhere := &search.Want{Identity: search.Identity{Number: 1000, Enqueued: page[6].EnqueuedTime.UnixMilli()}}
		if err := e.work.ReadAll(t.Context(), []*search.Want{byNumber, nowhere}, nil); err != nil {
			t.Fatal(err)
		}
		if byNumber.Found == nil || byNumber.Found.MessageID != "m-7" || nowhere.Found != nil {
			t.Errorf("found %+v and %+v, want m-7 and nothing", byNumber.Found, nowhere.Found)
		}
	})
}
