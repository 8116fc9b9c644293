// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

// A countedScene is a namespace with a client of the SDK.
type countedScene struct {
	*testing.T
	broker *broker.Broker
	client *azservicebus.Client
}

func setupCounted(t *testing.T, watch func(broker.Activity)) *countedScene {
	t.Helper()
	ns := brokertest.New(t, func(c *broker.Config) {
		*c = broker.Config{
			Queues: []broker.QueueConfig{
				{Name: "orders", DeadLetteringOnMessageExpiration: true, MaxDeliveryCount: 1},
				{Name: "relay", ForwardTo: "orders"},
			},
			Topics: []broker.TopicSetup{{
				TopicConfig:   broker.TopicConfig{Name: "events"},
				Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "all"}}},
			}},
		}
	})
	ns.Broker.Watch(watch)
	return &countedScene{t, ns.Broker, ns.Client(t)}
}

func (s *countedScene) send(to string, ms ...*azservicebus.Message) {
	s.Helper()
	sender, err := s.client.NewSender(to, nil)
	if err != nil {
		s.Fatal(err)
	}
	defer sender.Close(s.Context())
	for _, m := range ms {
		if err := sender.SendMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
	}
}

// lines are the statistics of entities, as far as they are not 0.
func lines(s broker.Statistics) (all []string) {
	for _, e := range s.Entities {
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s: in %d, out %d", e.Kind, e.Path, e.Incoming, e.Outgoing)
		for i, n := range e.Settled {
			if n > 0 {
				fmt.Fprintf(&b, ", %v %d", queue.Outcome(i), n)
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(e.DeadLetters)) {
			fmt.Fprintf(&b, ", dead for %s %d", reason, e.DeadLetters[reason])
		}
		if n := e.Messages; n != (queue.Counts{}) {
			fmt.Fprintf(&b, "; has %d %d %d %d", n.Active, n.Scheduled, n.Deferred, n.DeadLetter)
		}
		all = append(all, b.String())
	}
	return all
}

func TestStatisticsSayWhatClientsDidAndWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setupCounted(t, nil)
		text := func(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }
		soon := time.Now().Add(time.Hour)
		ttl := time.Second
		s.send("orders", text("complete"), text("abandon"), text("defer"), text("dead"), text("dead"), text("release"),
			&azservicebus.Message{TimeToLive: &ttl}, &azservicebus.Message{ScheduledEnqueueTime: &soon})
		s.send("relay", text("on its way"))
		s.send("events", text("event"))
		r, err := s.client.NewReceiverForQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		reason := "bad"
		for _, settle := range []func(*azservicebus.ReceivedMessage) error{
			func(m *azservicebus.ReceivedMessage) error { return r.CompleteMessage(t.Context(), m, nil) },
			func(m *azservicebus.ReceivedMessage) error { return r.AbandonMessage(t.Context(), m, nil) },
			func(m *azservicebus.ReceivedMessage) error { return r.DeferMessage(t.Context(), m, nil) },
			func(m *azservicebus.ReceivedMessage) error { return r.DeadLetterMessage(t.Context(), m, nil) },
			func(m *azservicebus.ReceivedMessage) error {
				return r.DeadLetterMessage(t.Context(), m, &azservicebus.DeadLetterOptions{Reason: &reason})
			},
		} {
			ms, err := r.ReceiveMessages(t.Context(), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := settle(ms[0]); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if ms, err := r.ReceiveMessages(t.Context(), 1, nil); err != nil || string(ms[0].Body) != "release" {
			t.Fatalf("received %v, %v", ms, err)
		}
		got := s.broker.Statistics()
		if diff := cmp.Diff([]string{
			"topic events: in 1, out 0",
			"subscription events/Subscriptions/all: in 0, out 0; has 1 0 0 0",
			// one delivery is enough: what was abandoned or deferred is dead
			"queue orders: in 8, out 6, complete 1, abandon 1, defer 1, dead_letter 2" +
				", dead for MaxDeliveryCountExceeded 2, dead for TTLExpiredException 1, dead for bad 1, dead for none 1; has 2 1 0 5",
			"queue relay: in 1, out 0",
		}, lines(got)); diff != "" {
			t.Errorf("entities (-want +got):\n%s", diff)
		}
		if got.Receivers != 1 || got.Senders != 0 {
			t.Errorf("%d senders and %d receivers, want the receiver alone", got.Senders, got.Receivers)
		}
		if _, err := s.client.NewReceiverForQueue("missing", nil); err != nil {
			t.Fatal(err)
		}
		sender, err := s.client.NewSender("missing", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.SendMessage(t.Context(), text("lost"), nil); err == nil {
			t.Fatal("a send to a missing queue succeeds")
		}
		if n := s.broker.Statistics().Refusals["amqp:not-found"]; n != 1 {
			t.Errorf("%d refusals for what is not found, want 1", n)
		}
	})
}

// Names come from clients, so those that are counted by themselves are bounded.
func TestEntitiesBeyondTheBoundAreCountedTogether(t *testing.T) {
	b, err := broker.New(broker.Config{AutoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range 1003 {
		if _, err := b.Default().Entity(fmt.Sprintf("q%04d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := b.Default().DeleteQueue("q0000"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Default().Entity("Q0000"); err != nil { // under the counters that it had
			t.Fatal(err)
		}
	}
	all := b.Statistics().Entities
	if len(all) != 1001 || all[0].Path != "q0000" || all[1000].Path != broker.OtherEntities {
		t.Errorf("%d entities, from %s to %s; want 1001, from q0000 to %s", len(all), all[0].Path, all[len(all)-1].Path, broker.OtherEntities)
	}
}

func TestAWatcherHearsOfEachActivityOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		s := setupCounted(t, func(a broker.Activity) {
			mu.Lock()
			defer mu.Unlock()
			line := fmt.Sprint(a.Operation, " ", a.Path, " ", a.Detail, " ", a.Messages)
			if a.Refusal != nil {
				line += " " + string(a.Refusal.Condition)
			}
			if a.Client == nil || a.Namespace == nil {
				line += " of nobody"
			}
			got = append(got, line)
		})
		s.send("orders", &azservicebus.Message{})
		r, err := s.client.NewReceiverForQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.ReceiveMessages(t.Context(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.PeekMessages(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.CompleteMessage(t.Context(), ms[0], nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.client.AcceptSessionForQueue(ctx, "orders", "none", nil); err == nil {
			t.Fatal("a session of a queue without sessions was accepted")
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		got = slices.DeleteFunc(got, func(line string) bool {
			return strings.HasPrefix(line, "token ") || strings.HasPrefix(line, "attach $cbs")
		})
		slices.Sort(got) // deliveries have a goroutine of their own
		if diff := cmp.Diff([]string{
			"attach orders receiver 0",
			"attach orders receiver 0 amqp:not-allowed",
			"attach orders sender 0",
			"attach orders/$management receiver 0",
			"attach orders/$management receiver 0",
			"attach orders/$management sender 0",
			"attach orders/$management sender 0",
			"management orders com.microsoft:peek-message 0",
			"receive orders  1",
			"send orders  1",
			"settle orders complete 1",
		}, got); diff != "" {
			t.Errorf("activities (-want +got):\n%s", diff)
		}
	})
}

// Sends, deliveries and settlements pass here, so nothing may cost memory as long as nobody looks.
func TestAnActivityCostsNoMemory(t *testing.T) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	seen := 0
	b.Watch(func(a broker.Activity) { seen += a.Messages })
	if n := testing.AllocsPerRun(100, func() {
		b.Note(broker.Activity{Operation: broker.OnSend, Path: "orders", Messages: 1})
	}); n > 0 || seen == 0 {
		t.Errorf("an activity costs %v allocations, want none; %d were seen", n, seen)
	}
}
