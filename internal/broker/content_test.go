// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/store"
	"overdue/internal/testing/brokertest"
)

// Messages go every way that a message can go, while the disk alone has what is in them.
func TestContentsOnDiskReachClientsAsTheyWere(t *testing.T) {
	disk, err := store.Open(filepath.Join(t.TempDir(), "overdue"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	disk.KeepInMemory(0, 0)
	sql := func(name, condition, action string) broker.RuleConfig {
		return broker.RuleConfig{
			Name:   name,
			Filter: broker.Filter{SQL: &broker.SQLFilter{Expression: condition}},
			Action: broker.Action{SQL: action},
		}
	}
	ns := brokertest.New(t, func(c *broker.Config) {
		c.Disk = disk
		c.Queues = []broker.QueueConfig{{Name: "q"}, {Name: "forwards", ForwardTo: "t"}}
		c.Topics = []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "t"},
			Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "some"}, Rules: []broker.RuleConfig{sql("odd", "odd = 'yes'", "")}},
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "all"}, Rules: []broker.RuleConfig{sql("changed", "1=1", "REMOVE odd")}},
			},
		}}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := ns.Client(t)
	const n = 5
	for _, to := range []string{"q", "forwards"} {
		sender, err := client.NewSender(to, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			id := fmt.Sprint("m", i)
			m := &azservicebus.Message{
				MessageID:             &id,
				Body:                  bodyOf(i),
				ApplicationProperties: map[string]any{"odd": []string{"no", "yes"}[i%2]},
			}
			if err := sender.SendMessage(ctx, m, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for path, want := range map[string]int{"q": n, "t/Subscriptions/some": n / 2, "t/Subscriptions/all": n} {
		q, ok := ns.Broker.Queue(path)
		if !ok || q.Counts().Active != want {
			t.Errorf("%s has %+v, want %d messages", path, q.Counts(), want)
		}
	}
	receiver, err := client.NewReceiverForQueue("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	checkAll(t, "peeked", n, func(most int) ([]*azservicebus.ReceivedMessage, error) { return receiver.PeekMessages(ctx, most, nil) })
	var held []*azservicebus.ReceivedMessage
	checkAll(t, "received", n, func(most int) ([]*azservicebus.ReceivedMessage, error) {
		ms, err := receiver.ReceiveMessages(ctx, most, nil)
		held = append(held, ms...)
		return ms, err
	})
	if err := receiver.DeferMessage(ctx, held[0], nil); err != nil {
		t.Fatal(err)
	}
	checkAll(t, "received by number", 1, func(int) ([]*azservicebus.ReceivedMessage, error) {
		return receiver.ReceiveDeferredMessages(ctx, []int64{*held[0].SequenceNumber}, nil)
	})
	for _, m := range held[1:] {
		if err := receiver.DeadLetterMessage(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
	}
	dead, err := client.NewReceiverForQueue("q", &azservicebus.ReceiverOptions{
		SubQueue:    azservicebus.SubQueueDeadLetter,
		ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	if err != nil {
		t.Fatal(err)
	}
	checkAll(t, "dead-lettered", n-1, func(most int) ([]*azservicebus.ReceivedMessage, error) { return dead.ReceiveMessages(ctx, most, nil) })
	for name, want := range map[string]int{"some": n / 2, "all": n} {
		r, err := client.NewReceiverForSubscription("t", name, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkAll(t, "of the subscription "+name, want, func(most int) ([]*azservicebus.ReceivedMessage, error) {
			ms, err := r.ReceiveMessages(ctx, most, nil)
			for _, m := range ms {
				if _, has := m.ApplicationProperties["odd"]; has != (name == "some") {
					t.Errorf("the subscription %s has the properties %v", name, m.ApplicationProperties)
				}
			}
			return ms, err
		})
	}
}

// bodyOf is larger than a frame of some clients.
func bodyOf(i int) []byte { return []byte(strings.Repeat(fmt.Sprint("body ", i, " "), 1000)) }

// checkAll fails unless get gives n messages, in as many calls as it takes, each with the body that
// its id stands for.
func checkAll(t *testing.T, what string, n int, get func(most int) ([]*azservicebus.ReceivedMessage, error)) {
	t.Helper()
	for n > 0 {
		ms, err := get(n)
		if err != nil || len(ms) == 0 {
			t.Fatalf("%s: %d messages are missing, %v", what, n, err)
		}
		n -= len(ms)
		for _, m := range ms {
			var i int
			if _, err := fmt.Sscanf(m.MessageID, "m%d", &i); err != nil || string(m.Body) != string(bodyOf(i)) {
				t.Errorf("%s: message %s has a body of %d bytes, %.20q", what, m.MessageID, len(m.Body), m.Body)
			}
		}
	}
}

func TestContentThatCannotBeReadIsAnInternalError(t *testing.T) {
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		d.Prompt = true
		ctx := context.Background()
		sender, err := ns.Client(t).NewSender("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("m")}, nil); err != nil {
			t.Fatal(err)
		}
		receiver, err := hasty(t, ns).NewReceiverForQueue("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		d.MakeUnreadable(errors.New("the disk cannot be read"))
		for what, do := range map[string]func(context.Context) error{
			"a link": func(ctx context.Context) error {
				link, err := session(t, ns).NewReceiver(ctx, "q", nil)
				if err == nil {
					_, err = link.Receive(ctx, nil)
				}
				return err
			},
			"PeekMessages": func(ctx context.Context) error {
				_, err := receiver.PeekMessages(ctx, 1, nil)
				return err
			},
		} {
			if err := prompt(do); err == nil || !strings.Contains(err.Error(), "the disk cannot be read") {
				t.Errorf("%s = %v, want the error of the disk", what, err)
			}
		}
		q, _ := ns.Broker.Queue("q")
		if n := q.Counts(); n.Active != 1 {
			t.Errorf("the queue has %+v, want the message", n)
		}
		d.MakeUnreadable(nil)
		ms, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil || len(ms) != 1 || string(ms[0].Body) != "m" || ms[0].DeliveryCount != 1 {
			t.Errorf("once the disk can be read ReceiveMessages = %v, %v, want the message, never delivered before", ms, err)
		}
	})
}

// plain is an encoded message with this body.
func plain(t *testing.T, body string) []byte {
	t.Helper()
	b, err := amqp.NewMessage([]byte(body)).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A message that cannot be read stays where it is, and is forwarded once it can.
func TestContentThatCannotBeReadIsForwardedLater(t *testing.T) {
	forwards := func(c *broker.Config) {
		c.Queues = append(c.Queues, broker.QueueConfig{Name: "forwards"})
	}
	onSlowDisk(t, forwards, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		d.Prompt = true
		e, err := ns.Broker.Default().Entity("forwards")
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Send(plain(t, "m")); err != nil {
			t.Fatal(err)
		}
		d.Sync()
		d.MakeUnreadable(errors.New("the disk cannot be read"))
		forwards, err := ns.Broker.Default().QueueInfo("forwards")
		if err != nil {
			t.Fatal(err)
		}
		forwards.Config.ForwardTo = "q"
		if _, err := ns.Broker.Default().UpdateQueue(forwards.Config); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		q, _ := ns.Broker.Queue("q")
		if q.Counts().Active != 0 || e.Queue().Counts().Active != 1 {
			t.Errorf("there are %+v and %+v, want the message where it was", q.Counts(), e.Queue().Counts())
		}
		d.MakeUnreadable(nil)
		time.Sleep(2 * queue.DefaultLockDuration)
		if err := e.Send(plain(t, "n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		var sizes []int
		for _, v := range brokertest.Seen(q.Peek(nil, 0, 9)) {
			sizes = append(sizes, len(v.Body))
		}
		if want := len(plain(t, "m")); !slices.Equal(sizes, []int{want, want}) {
			t.Errorf("forwarded are messages of %d bytes, want two of %d", sizes, want)
		}
	})
}
