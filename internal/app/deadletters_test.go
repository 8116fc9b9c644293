// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/entities"
	"overdue/internal/testing/brokertest"
	"overdue/internal/web"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
)

func TestDeadLettersAreCountedWithTheirReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) {
			c.Expiry = queue.Eager
			c.Queues = []broker.QueueConfig{{Name: "orders", DeadLetteringOnMessageExpiration: true}, {Name: "empty"}, {Name: "elsewhere"}}
			c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}, Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "audit", DeadLetteringOnMessageExpiration: true}}, {SubscriptionConfig: broker.SubscriptionConfig{Name: "bills"}},
			}}}
		})
		client := ns.Client(t)
		send := func(entity string, n int, ttl time.Duration) {
			t.Helper()
			sender, err := client.NewSender(entity, nil)
			if err != nil {
				t.Fatal(err)
			}
			batch, err := sender.NewMessageBatch(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				if err := batch.AddMessage(&azservicebus.Message{TimeToLive: &ttl}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := sender.SendMessageBatch(t.Context(), batch, nil); err != nil {
				t.Fatal(err)
			}
		}
		describe := func(_ context.Context, name string) (entities.Info, error) {
			if name == "elsewhere" {
				return entities.Info{}, entities.ErrNoRight
			}
			info := entities.Info{Kind: entities.Queue}
			if name == "events" {
				info.Kind, info.Subscriptions = entities.Topic, []entities.Subscription{{Name: "audit"}, {Name: "bills"}}
			}
			return info, nil
		}
		count := deadLetters(ns.Links(t)).below(describe)
		want := func(entity, subscription string, want alert.DeadLetters) {
			t.Helper()
			want.Time = time.Now()
			got, err := count(t.Context(), entity, subscription)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("dead letters of %s: %v (-want +got):\n%s", entity, err, diff)
			}
		}
		want("orders", "", alert.DeadLetters{})
		send("orders", 1, time.Hour)
		r, err := client.NewReceiverForQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.ReceiveMessages(t.Context(), 1, nil)
		if err != nil || len(ms) != 1 {
			t.Fatalf("ReceiveMessages = %d, %v", len(ms), err)
		}
		if err := r.DeadLetterMessage(t.Context(), ms[0], &azservicebus.DeadLetterOptions{Reason: to.Ptr("invalid")}); err != nil {
			t.Fatal(err)
		}
		send("orders", 300, time.Second)
		send("events", 2, time.Second)
		time.Sleep(2 * time.Second)
		want("orders", "", alert.DeadLetters{Count: 301, Missed: 300})
		want("events", "audit", alert.DeadLetters{Count: 2, Missed: 2})
		want("events", "", alert.DeadLetters{Count: 2, Missed: 2, Subscriptions: []string{"audit"}})
		want("empty", "", alert.DeadLetters{})
		send("empty", 1, time.Hour) // it waits, and is no dead letter
		want("empty", "", alert.DeadLetters{})
		send("orders", 800, time.Second)
		time.Sleep(2 * time.Second)
		want("orders", "", alert.DeadLetters{Count: maxDeadLetters, Missed: maxDeadLetters - 1, More: true})
		send("empty", 299, time.Hour)
		depths, err := peekedDepths(t.Context(), ns.Links(t), "empty")
		if diff := cmp.Diff(map[string]web.Depth{"empty": {Messages: 250, More: true}}, depths); diff != "" || err != nil {
			t.Errorf("depths: %v (-want +got):\n%s", err, diff)
		}
		for _, entity := range []string{"../orders", "sb://elsewhere/orders", "elsewhere"} {
			if d, err := count(t.Context(), entity, ""); err == nil {
				t.Errorf("dead letters of %s = %+v, want an error", entity, d)
			}
		}
	})
}
