// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/broker"
	"overdue/internal/slack"
)

// slackOf is what a meter has counted that is registered with metrics.
func slackOf(t *testing.T, metrics *prometheus.Registry) map[string]slack.Settlements {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slack.Read(families)
}

// settledOf is how many settlements of orders were counted.
func settledOf(t *testing.T, metrics *prometheus.Registry) uint64 {
	t.Helper()
	return slackOf(t, metrics)["orders"].Summarize("orders").Count
}

// How much time was left is measured where a settlement takes the message off its queue, however
// the companions are kept, also if its send did not pass the endpoint.
func TestSlackOfSettlements(t *testing.T) {
	receive := func(sc *amqpScene, o *azservicebus.ReceiverOptions) (*azservicebus.Receiver, *azservicebus.ReceivedMessage) {
		r, err := sc.app.NewReceiverForQueue("orders", o)
		sc.must(err)
		ms, err := r.ReceiveMessages(sc.Context(), 1, nil)
		sc.must(err)
		return r, ms[0]
	}
	for name, tc := range map[string]struct {
		lacks, past, unmeasured bool // a deadline, the endpoint at its send, the broker's clock
		settle                  func(*amqpScene)
		want                    slack.Summary
	}{
		"completed": {settle: (*amqpScene).completeOne, want: slack.Summary{Count: 1}},
		"dead-lettered": {want: slack.Summary{Count: 1}, settle: func(sc *amqpScene) {
			r, m := receive(sc, nil)
			sc.must(r.DeadLetterMessage(sc.Context(), m, nil))
		}},
		"received and deleted": {want: slack.Summary{Count: 1}, settle: func(sc *amqpScene) {
			receive(sc, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		}},
		"completed late": {want: slack.Summary{Count: 1, Late: 1}, settle: func(sc *amqpScene) {
			r, m := receive(sc, nil)
			time.Sleep(55 * time.Second)
			sc.must(r.CompleteMessage(sc.Context(), m, nil))
		}},
		"abandoned": {settle: func(sc *amqpScene) {
			r, m := receive(sc, nil)
			sc.must(r.AbandonMessage(sc.Context(), m, nil))
		}},
		"sent past the endpoint": {past: true, settle: (*amqpScene).completeOne, want: slack.Summary{Count: 1}},
		"settled past the endpoint": {settle: func(sc *amqpScene) {
			r, err := sc.ns.Client(sc.T).NewReceiverForQueue("orders", nil)
			sc.must(err)
			ms, err := r.ReceiveMessages(sc.Context(), 1, nil)
			sc.must(err)
			sc.must(r.CompleteMessage(sc.Context(), ms[0], nil))
		}},
		"without a deadline":      {lacks: true, settle: (*amqpScene).completeOne},
		"with a clock of our own": {unmeasured: true, settle: (*amqpScene).completeOne},
	} {
		for _, companions := range []string{"each", "slot"} {
			t.Run(name+", "+companions, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					metrics := prometheus.NewRegistry()
					meter := slack.NewMeter(metrics)
					sc := setupAMQP(t, func(s *setting) {
						s.companions, s.measure, s.proxy.Slack = companions, !tc.unmeasured, meter
						s.broker.Queues = []broker.QueueConfig{}
						s.proxy.Settings = func(string) Settings { return Settings{Monitored: true, StampTTL: true, Findable: true} }
					})
					m := &azservicebus.Message{MessageID: to.Ptr("m"), TimeToLive: to.Ptr(time.Minute)}
					if tc.lacks {
						m.TimeToLive = nil
					}
					sender := sc.sender("orders")
					if tc.past {
						var err error
						sender, err = sc.ns.Client(t).NewSender("orders", nil)
						sc.must(err)
					}
					sc.must(sender.SendMessage(t.Context(), m, nil))
					time.Sleep(10 * time.Second)
					tc.settle(sc)
					synctest.Wait()
					got := slackOf(t, metrics)["orders"].Summarize("orders")
					if got.Count != tc.want.Count || got.Late != tc.want.Late {
						t.Errorf("%+v, want %d settlements, %d late", got, tc.want.Count, tc.want.Late)
					}
					if got.Count == 1 && got.Late == 0 && (got.LeftP50 < 47_000 || got.LeftP50 > 50_000 || got.TakenP50 < 10_000 || got.TakenP50 > 10_700) {
						t.Errorf("%+v, want 50 s left and 10 s taken", got)
					}
				})
			})
		}
	}
}

// Of many deliveries in a second one stands for several, so that measuring costs little. None is
// lost from the count but those of the last, unfinished sample.
func TestSlackOfManyMessagesIsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		meter := slack.NewMeter(metrics)
		sc := setupAMQP(t, func(s *setting) { s.proxy.Slack = meter })
		sender, err := sc.ns.Client(t).NewSender("orders", nil) // past the endpoint: nobody expects them
		sc.must(err)
		const n = 500
		for sent := 0; sent < n; {
			b, err := sender.NewMessageBatch(t.Context(), nil)
			sc.must(err)
			for ; sent < n && b.NumMessages() < 100; sent++ {
				sc.must(b.AddMessage(&azservicebus.Message{TimeToLive: to.Ptr(time.Minute)}, nil))
			}
			sc.must(sender.SendMessageBatch(t.Context(), b, nil))
		}
		time.Sleep(10 * time.Second)
		r, err := sc.app.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		sc.must(err)
		receive := func(n int) {
			for n > 0 {
				ms, err := r.ReceiveMessages(t.Context(), n, nil)
				sc.must(err)
				n -= len(ms)
			}
			synctest.Wait()
		}
		receive(450)
		if got := settledOf(t, metrics); got > 450 || got < 450-2*slack.SampleEvery {
			t.Errorf("%d settlements are counted of 450, want all but those of a sample", got)
		}
		before := settledOf(t, metrics)
		time.Sleep(2 * time.Second)
		receive(50) // the first sample ends the second; then each counts
		if got := settledOf(t, metrics) - before; got < 50-slack.SampleEvery || got > 50+slack.SampleEvery {
			t.Errorf("%d settlements are counted of 50", got)
		}
	})
}

// Each copy of a message counts in its subscription.
func TestSlackOfSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		meter := slack.NewMeter(metrics)
		sc := setupAMQP(t, func(s *setting) {
			s.proxy.Slack = meter
			s.broker.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}, Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "audit"}}, {SubscriptionConfig: broker.SubscriptionConfig{Name: "mail"}},
			}}}
		})
		sc.must(sc.sender("events").SendMessage(t.Context(), &azservicebus.Message{MessageID: to.Ptr("m"), TimeToLive: to.Ptr(time.Minute)}, nil))
		time.Sleep(10 * time.Second)
		for _, name := range []string{"audit", "mail"} {
			r, err := sc.app.NewReceiverForSubscription("events", name, nil)
			sc.must(err)
			ms, err := r.ReceiveMessages(t.Context(), 1, nil)
			sc.must(err)
			if name == "mail" {
				time.Sleep(55 * time.Second)
			}
			sc.must(r.CompleteMessage(t.Context(), ms[0], nil))
		}
		synctest.Wait()
		for name, late := range map[string]uint64{"events/Subscriptions/audit": 0, "events/Subscriptions/mail": 1} {
			got := slackOf(t, metrics)[name].Summarize(name)
			if got.Count != 1 || got.Late != late || late == 0 && (got.LeftP50 < 47_000 || got.LeftP50 > 50_000) {
				t.Errorf("%+v, want one settlement, %d late", got, late)
			}
		}
	})
}
