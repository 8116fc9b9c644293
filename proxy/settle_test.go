// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/scheduler"
	"overdue/scheduler/index"
)

// completeOne receives one message through the AMQP endpoint and completes it.
func (sc *amqpScene) completeOne() {
	sc.Helper()
	r, err := sc.app.NewReceiverForQueue("orders", nil)
	sc.must(err)
	ms, err := r.ReceiveMessages(sc.Context(), 1, nil)
	sc.must(err)
	sc.must(r.CompleteMessage(sc.Context(), ms[0], nil))
	sc.must(r.Close(sc.Context()))
}

// Of which sends it is known when one is settled through the endpoint.
func TestSettlementIsTiedToItsSend(t *testing.T) {
	minute := time.Minute
	send := func(m *azservicebus.Message) func(*amqpScene) {
		return func(sc *amqpScene) { sc.must(sc.sender("orders").SendMessage(sc.Context(), m, nil)) }
	}
	property := map[string]any{"overdue-within": "45s"}
	for name, tc := range map[string]struct {
		send func(*amqpScene)
		want bool
	}{
		"time-to-live":       {send(&azservicebus.Message{MessageID: to.Ptr("m"), TimeToLive: &minute}), true},
		"without an id":      {send(&azservicebus.Message{TimeToLive: &minute}), true},
		"property":           {send(&azservicebus.Message{MessageID: to.Ptr("m"), ApplicationProperties: property}), true},
		"property and life":  {send(&azservicebus.Message{MessageID: to.Ptr("m"), ApplicationProperties: property, TimeToLive: &minute}), true},
		"instant":            {send(&azservicebus.Message{MessageID: to.Ptr("m"), ApplicationProperties: map[string]any{"overdue-deadline": time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)}}), true},
		"grouped":            {send(&azservicebus.Message{MessageID: to.Ptr("m"), SessionID: to.Ptr("s"), TimeToLive: &minute}), true},
		"long ago scheduled": {send(&azservicebus.Message{MessageID: to.Ptr("m"), TimeToLive: &minute, ScheduledEnqueueTime: to.Ptr(time.Unix(1, 0))}), true},
		// Its stamp is that of its activation, of which nobody tells.
		"scheduled": {send(&azservicebus.Message{MessageID: to.Ptr("m"), TimeToLive: &minute, ScheduledEnqueueTime: to.Ptr(time.Date(2000, 1, 1, 0, 0, 5, 0, time.UTC))}), false},
		// The SDK may have sent it twice.
		"by REST": {func(sc *amqpScene) {
			sc.post("/orders/messages", "body", "BrokerProperties", `{"MessageId":"m","TimeToLive":60}`)
		}, false},
		// Nobody hears when the broker has accepted it.
		"sent settled": {func(sc *amqpScene) {
			s, err := sc.session().NewSender(sc.Context(), "orders", &goamqp.SenderOptions{SettlementMode: goamqp.SenderSettleModeSettled.Ptr()})
			sc.must(err)
			sc.must(s.Send(sc.Context(), &goamqp.Message{Header: &goamqp.MessageHeader{TTL: minute}, Properties: &goamqp.MessageProperties{MessageID: "m"}}, nil))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setupAMQP(t)
				tc.send(sc)
				time.Sleep(10 * time.Second)
				refs := sc.references()
				if len(refs) != 1 {
					t.Fatalf("%d references, want 1", len(refs))
				}
				if sc.scheduler.Settled("orders", &refs[0]) {
					t.Error("Settled = true before anybody received it")
				}
				sc.completeOne()
				synctest.Wait()
				if got := sc.scheduler.Settled("ORDERS", &refs[0]); got != tc.want {
					t.Errorf("Settled = %v, want %v", got, tc.want)
				}
			})
		})
	}
}

func TestLinksThatAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t, func(s *setting) {
			s.proxy.Excluded = func(entity string) bool { return entity == "plain" }
		})
		for address, want := range map[string]bool{
			"orders": true, "/orders": true, "sb://contoso/orders": true, "team/orders": true,
			"plain": false, "orders/$DeadLetterQueue": false, "orders/$Transfer/$DeadLetterQueue": false,
			"events/Subscriptions/audit": true, "events/subscriptions/audit/$deadletterqueue": false, "": false,
		} {
			if got := sc.proxy.observe(linkOf(receiverFrom(address))) != nil; got != want {
				t.Errorf("observed %q: %v, want %v", address, got, want)
			}
		}
	})
}

// Deliveries with values that must not be taken for the message that was sent from here, or that
// cannot be read.
func TestDeliveriesThatAreNotTiedToASend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		stamp := time.Now().Truncate(time.Millisecond)
		sc.scheduler.Expect("orders", []scheduler.Reference{{MessageID: "m", Sent: stamp, From: stamp, Until: stamp.Add(time.Second), Deadline: stamp.Add(time.Minute), Within: time.Minute}})
		encode := func(change func(*goamqp.Message)) []byte {
			m := &goamqp.Message{
				Header: &goamqp.MessageHeader{TTL: time.Minute}, Properties: &goamqp.MessageProperties{MessageID: "m"},
				Annotations: goamqp.Annotations{"x-opt-enqueued-time": stamp, "x-opt-sequence-number": int64(7)},
				Data:        [][]byte{make([]byte, 100)},
			}
			change(m)
			b, err := m.MarshalBinary()
			sc.must(err)
			return b
		}
		l := &settleLink{p: sc.proxy, entity: "orders"}
		whole := encode(func(*goamqp.Message) {})
		for name, tc := range map[string]struct {
			payload []byte
			want    bool
		}{
			"as it was sent":      {whole, true},
			"its first frame":     {whole[:len(whole)-50], true},
			"a part of its head":  {whole[:40], false},
			"nothing":             {nil, false},
			"garbage":             {[]byte{0, 0x53, 0x73, 0xff, 0xff}, false},
			"another id":          {encode(func(m *goamqp.Message) { m.Properties.MessageID = "n" }), false},
			"no id":               {encode(func(m *goamqp.Message) { m.Properties = nil }), false},
			"another session":     {encode(func(m *goamqp.Message) { m.Properties.GroupID = to.Ptr("s") }), false},
			"no stamp":            {encode(func(m *goamqp.Message) { delete(m.Annotations, "x-opt-enqueued-time") }), false},
			"a stamp of words":    {encode(func(m *goamqp.Message) { m.Annotations["x-opt-enqueued-time"] = "now" }), false},
			"no deadline":         {encode(func(m *goamqp.Message) { m.Header = nil }), false},
			"forwarded":           {encode(func(m *goamqp.Message) { m.Annotations["x-opt-enqueue-sequence-number"] = int64(3) }), false},
			"enqueued here":       {encode(func(m *goamqp.Message) { m.Annotations["x-opt-enqueue-sequence-number"] = int64(7) }), true},
			"forwarded from 0":    {encode(func(m *goamqp.Message) { m.Annotations["x-opt-enqueue-sequence-number"] = int64(0) }), true},
			"forwarded, in words": {encode(func(m *goamqp.Message) { m.Annotations["x-opt-enqueue-sequence-number"] = "3" }), false},
			"a deadline of nonsense": {encode(func(m *goamqp.Message) {
				m.ApplicationProperties = map[string]any{"overdue-within": "soon"}
			}), false},
		} {
			n, noted := l.Delivered(tc.payload)
			d, _ := l.deliveredOf(n)
			tied := d.Key != index.Key{}
			if tied != tc.want {
				t.Errorf("%s: tied to a send: %v, want %v", name, tied, tc.want)
			}
			if noted && (d.Number != 7 || !d.Enqueued.Equal(stamp)) || tied && !d.Deadline.Equal(stamp.Add(time.Minute)) {
				t.Errorf("%s: noted %+v", name, d)
			}
		}
	})
}

// It is looked at with the connection's lock held, for every message that anybody receives from a
// monitored queue.
func TestNotingADeliveryAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		m := &goamqp.Message{
			Header: &goamqp.MessageHeader{TTL: time.Minute}, Properties: &goamqp.MessageProperties{MessageID: "m"},
			Annotations: goamqp.Annotations{"x-opt-enqueued-time": time.Now(), "x-opt-sequence-number": int64(7)}, Data: [][]byte{nil},
		}
		b, err := m.MarshalBinary()
		sc.must(err)
		l := &settleLink{p: sc.proxy, entity: "orders", path: "orders"}
		if n := testing.AllocsPerRun(100, func() {
			if n, noted := l.Delivered(b); noted {
				l.Settling(n)
				l.Settled(n)
			}
		}); n != 0 {
			t.Errorf("%v allocations for a message that was not sent from here, want none", n)
		}
	})
}

// The monitor asks for the messages of slots, and of other processes, by their identities.
func TestSettlementsAreKnownByIdentity(t *testing.T) {
	for _, path := range []string{"orders", "events/Subscriptions/audit"} {
		synctest.Test(t, func(t *testing.T) {
			sc := setupAMQP(t, func(s *setting) {
				s.broker.Topics = []broker.TopicSetup{{
					TopicConfig:   broker.TopicConfig{Name: "events"},
					Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "audit"}}},
				}}
			})
			sender, err := sc.ns.Client(t).NewSender(strings.Split(path, "/")[0], nil) // past the endpoint
			sc.must(err)
			sc.must(sender.SendMessage(t.Context(), &azservicebus.Message{TimeToLive: to.Ptr(time.Minute)}, nil))
			r, err := sc.app.NewReceiverForQueue(path, nil)
			sc.must(err)
			ms, err := r.ReceiveMessages(sc.Context(), 1, nil)
			sc.must(err)
			settled := func(number int64) bool {
				settled, _ := sc.scheduler.IsSettled(path, number, *ms[0].EnqueuedTime)
				return settled
			}
			number := *ms[0].SequenceNumber
			if settled(number) {
				t.Errorf("%s: settled before anybody settled it", path)
			}
			sc.must(r.AbandonMessage(sc.Context(), ms[0], nil))
			if settled(number) {
				t.Errorf("%s: settled after it was abandoned", path)
			}
			ms, err = r.ReceiveMessages(sc.Context(), 1, nil)
			sc.must(err)
			sc.must(r.CompleteMessage(sc.Context(), ms[0], nil))
			synctest.Wait()
			if !settled(number) || settled(number+1) {
				t.Errorf("%s: settled %v, and the next %v, want the one that was completed", path, settled(number), settled(number+1))
			}
		})
	}
}
