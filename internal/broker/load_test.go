// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

// shop is entities of all kinds.
func shop(c *broker.Config) {
	c.AutoCreate = false
	c.Queues = []broker.QueueConfig{
		{Name: "orders", MaxDeliveryCount: 3, DeadLetteringOnMessageExpiration: true},
		{Name: "carts", RequiresSession: true, RequiresDuplicateDetection: true},
		{Name: "parts", EnablePartitioning: true},
		{Name: "relay", ForwardTo: "archive"},
		{Name: "failing", ForwardDeadLetteredMessagesTo: "archive"},
		{Name: "lost", ForwardTo: "nowhere"}, // its messages are transfer dead letters
		{Name: "archive", MaxSize: 1 << 20},
		{Name: "monitor"},
	}
	c.Topics = []broker.TopicSetup{{
		TopicConfig: broker.TopicConfig{Name: "events"},
		Subscriptions: []broker.SubscriptionSetup{
			{SubscriptionConfig: broker.SubscriptionConfig{Name: "all"}},
			{SubscriptionConfig: broker.SubscriptionConfig{Name: "copy", ForwardTo: "archive"}},
			{
				SubscriptionConfig: broker.SubscriptionConfig{Name: "eu"},
				Rules: []broker.RuleConfig{{
					Name:   "eu",
					Filter: broker.Filter{SQL: &broker.SQLFilter{Expression: "region = @r", Parameters: broker.ValuesOf(map[string]any{"@r": "eu"})}},
					Action: broker.Action{SQL: "SET seen = TRUE"},
				}},
			},
		},
	}}
}

// A found message is what a test compares of one, by its place.
type found struct {
	Place          string // entity, and state
	SequenceNumber int64
	DeliveryCount  int
	Session        string
	Reason         string
	Enqueued       time.Time
	Scheduled      time.Time
	Expires        time.Time
	Content        []byte
}

// messagesOf is all messages of a broker, by their ids and places.
func messagesOf(b *broker.Broker) map[string]found {
	all := make(map[string]found)
	for _, e := range b.Default().Entities() {
		for part, q := range map[string]*queue.Queue{"": e.Queue(), "/dead": e.Queue().DeadLetterQueue()} {
			for _, v := range brokertest.Seen(q.Peek(nil, 0, 1000)) {
				f := found{
					Place:          fmt.Sprintf("%s%s, state %d", e.Path(), part, v.State),
					SequenceNumber: v.SequenceNumber,
					DeliveryCount:  v.DeliveryCount,
					Session:        v.SessionID,
					Reason:         v.DeadLetterReason,
					Enqueued:       v.EnqueuedTime,
					Scheduled:      v.ScheduledEnqueueTime,
					Expires:        v.ExpiresAt,
					Content:        v.Body,
				}
				all[v.MessageID+" in "+e.Path()+part] = f
			}
		}
	}
	return all
}

// countsOf is the counts of all entities, by path.
func countsOf(b *broker.Broker) map[string]queue.Counts {
	all := make(map[string]queue.Counts)
	for _, e := range b.Default().Entities() {
		all[e.Path()] = e.Queue().Counts()
	}
	return all
}

// A scene is a client of a namespace, whose every step has to succeed.
type scene struct {
	t      *testing.T
	ns     *brokertest.Namespace
	client *azservicebus.Client
}

func newScene(t *testing.T, d broker.Disk, configure func(*broker.Config)) *scene {
	t.Helper()
	ns := brokertest.New(t, configure, func(c *broker.Config) { c.Disk = d })
	return &scene{t, ns, ns.Client(t)}
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// send sends messages with these ids; change may be nil.
func (s *scene) send(to string, change func(*azservicebus.Message), ids ...string) {
	s.t.Helper()
	sender, err := s.client.NewSender(to, nil)
	s.must(err)
	defer sender.Close(s.t.Context()) //nolint:errcheck // its sends are checked
	for _, id := range ids {
		m := &azservicebus.Message{MessageID: &id, Body: []byte("body of " + id)}
		if change != nil {
			change(m)
		}
		s.must(sender.SendMessage(s.t.Context(), m, nil))
	}
}

// receive receives n messages, and settles each. Those that are not settled stay locked.
func (s *scene) receive(from string, n int, settle func(*azservicebus.Receiver, *azservicebus.ReceivedMessage) error) (ids []string) {
	s.t.Helper()
	var r *azservicebus.Receiver
	var err error
	if topic, subscription, is := strings.Cut(from, "/Subscriptions/"); is {
		r, err = s.client.NewReceiverForSubscription(topic, subscription, nil)
	} else {
		r, err = s.client.NewReceiverForQueue(from, nil)
	}
	s.must(err)
	for len(ids) < n {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		ms, err := r.ReceiveMessages(ctx, 1, nil)
		cancel()
		s.must(err)
		for _, m := range ms {
			ids = append(ids, m.MessageID)
			if settle != nil {
				s.must(settle(r, m))
			}
		}
	}
	if settle != nil {
		s.must(r.Close(s.t.Context()))
	}
	return ids
}

func complete(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
	return r.CompleteMessage(context.Background(), m, nil)
}

// fill sends messages of every kind.
func (s *scene) fill() {
	s.t.Helper()
	inAnHour := func(m *azservicebus.Message) { m.ScheduledEnqueueTime = new(time.Now().Add(time.Hour)) }
	s.send("orders", nil, "dead", "deferred", "locked", "active 1", "active 2")
	s.receive("orders", 1, func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.DeadLetterMessage(s.t.Context(), m, &azservicebus.DeadLetterOptions{Reason: new("because")})
	})
	s.receive("orders", 1, func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.DeferMessage(s.t.Context(), m, nil)
	})
	s.receive("orders", 1, nil)
	s.send("orders", inAnHour, "scheduled")
	s.send("orders", func(m *azservicebus.Message) { m.TimeToLive = new(30 * time.Minute) }, "short-lived")
	for _, id := range []string{"a", "b"} {
		s.send("carts", func(m *azservicebus.Message) { m.SessionID = &id }, id+" 1", id+" 2")
	}
	session, err := s.client.AcceptSessionForQueue(s.t.Context(), "carts", "a", nil)
	s.must(err)
	s.must(session.SetSessionState(s.t.Context(), []byte("state of a"), nil))
	s.must(session.Close(s.t.Context()))
	s.send("parts", nil, "part 1", "part 2", "part 3")
	s.send("relay", nil, "relayed")
	s.send("failing", nil, "failed")
	s.receive("failing", 1, func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.DeadLetterMessage(s.t.Context(), m, nil)
	})
	synctest.Wait() // the mover of dead letters, before events go to the same place
	s.send("lost", nil, "lost")
	s.send("events", nil, "event")
	s.send("events", func(m *azservicebus.Message) {
		m.ApplicationProperties = map[string]any{"region": "eu"}
	}, "event eu")
	s.send("events", func(m *azservicebus.Message) {
		inAnHour(m)
		m.ApplicationProperties = map[string]any{"region": "eu"}
	}, "event later")
	s.send("monitor", inAnHour, "companion 1", "companion 2")
	synctest.Wait()
}

// Everything is there after a restart, once, as it was, and goes on.
func TestABrokerComesBackWithWhatItHad(t *testing.T) {
	for name, end := range map[string]func(*brokertest.Namespace, *brokertest.SlowDisk) *brokertest.SlowDisk{
		"power is lost": func(_ *brokertest.Namespace, d *brokertest.SlowDisk) *brokertest.SlowDisk { return d.PowerLost() },
		"it is closed": func(ns *brokertest.Namespace, d *brokertest.SlowDisk) *brokertest.SlowDisk {
			_ = ns.Broker.Close() // its end is not what is tested
			d.Sync()
			return d.PowerLost()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &brokertest.SlowDisk{Prompt: true}
				first := newScene(t, disk, shop)
				first.fill()
				want, counts := messagesOf(first.ns.Broker), countsOf(first.ns.Broker)
				older := want["locked in orders"]
				older.DeliveryCount++
				want["locked in orders"] = older

				again := newScene(t, end(first.ns, disk), shop)
				_ = first.client.Close(t.Context()) // as in goOn
				if diff := cmp.Diff(want, messagesOf(again.ns.Broker)); diff != "" {
					t.Errorf("messages after a restart (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(counts, countsOf(again.ns.Broker)); diff != "" {
					t.Errorf("counts after a restart (-want +got):\n%s", diff)
				}
				if got := again.ns.Broker.Differences(); len(got) > 0 {
					t.Errorf("Differences = %q, want none", got)
				}
				again.goOn(want)
			})
		})
	}
}

// goOn asks for what was stored before a restart, and does what could be done then.
func (s *scene) goOn(before map[string]found) {
	t := s.t
	t.Helper()
	receive := func(from string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, s.receive(from, len(want), complete)); diff != "" {
			t.Errorf("received from %s (-want +got):\n%s", from, diff)
		}
	}
	s.send("orders", nil, "new")
	last := int64(0)
	for id, f := range before {
		if strings.Contains(id, " in orders") {
			last = max(last, f.SequenceNumber)
		}
	}
	if got := messagesOf(s.ns.Broker)["new in orders"].SequenceNumber; got != last+1 {
		t.Errorf("the next message has number %d, want %d", got, last+1)
	}
	receive("orders", "locked", "active 1", "active 2", "short-lived", "new")
	r, err := s.client.NewReceiverForQueue("orders", nil)
	s.must(err)
	deferred, err := r.ReceiveDeferredMessages(t.Context(), []int64{before["deferred in orders"].SequenceNumber}, nil)
	s.must(err)
	s.must(r.CompleteMessage(t.Context(), deferred[0], nil))
	s.must(r.Close(t.Context()))
	receive("events/Subscriptions/all", "event", "event eu")
	receive("events/Subscriptions/eu", "event eu")
	receive("parts", "part 1", "part 2", "part 3")

	s.must(s.client.Close(t.Context())) // it would renew tokens under a mutex, for which fake time stands still
	time.Sleep(time.Hour)
	s.client = s.ns.Client(t)
	synctest.Wait()
	receive("orders", "scheduled")
	receive("monitor", "companion 1", "companion 2")
	receive("events/Subscriptions/all", "event later")
	receive("events/Subscriptions/eu", "event later")
	receive("archive", "relayed", "failed", "event", "event eu", "event later")
	s.send("relay", nil, "relayed again") // forwards go on
	receive("archive", "relayed again")
	for _, id := range []string{"a", "b"} {
		session, err := s.client.AcceptSessionForQueue(t.Context(), "carts", id, nil)
		s.must(err)
		ms, err := session.ReceiveMessages(t.Context(), 2, nil)
		s.must(err)
		state, err := session.GetSessionState(t.Context(), nil)
		s.must(err)
		if want := map[string]string{"a": "state of a"}[id]; string(state) != want {
			t.Errorf("session %s has state %q, want %q", id, state, want)
		}
		if len(ms) != 2 || ms[0].MessageID != id+" 1" || ms[1].MessageID != id+" 2" {
			t.Errorf("session %s has %d messages, want its 2 in order", id, len(ms))
		}
		s.must(session.Close(t.Context()))
	}
}
