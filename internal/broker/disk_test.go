// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

func onSlowDisk(t *testing.T, configure func(*broker.Config), scene func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk)) {
	d := &brokertest.SlowDisk{}
	bubble(t, func(c *broker.Config) {
		c.Disk = d
		c.Queues = []broker.QueueConfig{{Name: "q"}}
		if configure != nil {
			configure(c)
		}
	}, func(t *testing.T, ns *brokertest.Namespace) {
		d.Sync() // the entities are there
		scene(t, ns, d)
	})
}

func TestOutcomesWaitForTheDisk(t *testing.T) {
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		ctx := context.Background()
		client := ns.Client(t)
		sender, err := client.NewSender("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		message := &azservicebus.Message{Body: []byte("m")}
		d.Until(t, "SendMessage", func() error { return sender.SendMessage(ctx, message, nil) })
		var numbers []int64
		d.Until(t, "ScheduleMessages", func() (err error) {
			numbers, err = sender.ScheduleMessages(ctx, []*azservicebus.Message{message}, time.Now().Add(time.Hour), nil)
			return err
		})
		d.Until(t, "CancelScheduledMessages", func() error { return sender.CancelScheduledMessages(ctx, numbers, nil) })

		receiver, err := client.NewReceiverForQueue("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		var ms []*azservicebus.ReceivedMessage
		receive := func() (err error) {
			ms, err = receiver.ReceiveMessages(ctx, 1, nil)
			return err
		}
		d.Until(t, "ReceiveMessages", receive) // that it was delivered has to be on disk, too
		d.Until(t, "AbandonMessage", func() error { return receiver.AbandonMessage(ctx, ms[0], nil) })
		d.Until(t, "ReceiveMessages again", receive)
		d.Until(t, "CompleteMessage", func() error { return receiver.CompleteMessage(ctx, ms[0], nil) })
	})
}

func TestSessionStateIsOnDiskBeforeItsAnswer(t *testing.T) {
	configure := func(c *broker.Config) {
		c.Queues = append(c.Queues, broker.QueueConfig{Name: "sessions", RequiresSession: true})
	}
	onSlowDisk(t, configure, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		ctx := context.Background()
		receiver, err := ns.Client(t).AcceptSessionForQueue(ctx, "sessions", "s", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range [][]byte{[]byte("state"), nil} {
			d.Until(t, "SetSessionState", func() error { return receiver.SetSessionState(ctx, state, nil) })
			if got, err := receiver.GetSessionState(ctx, nil); err != nil || string(got) != string(state) {
				t.Errorf("GetSessionState = %q, %v, want %q", got, err, state)
			}
		}
	})
}

func TestReceiveAndDeleteIsOnDiskBeforeTheMessageLeaves(t *testing.T) {
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		e, err := ns.Broker.Default().Entity("q")
		if err != nil {
			t.Fatal(err)
		}
		q := e.Queue()
		if _, err := q.Send(queue.Message{Body: []byte("\x00\x53\x75\xa0\x01m")}); err != nil {
			t.Fatal(err)
		}
		d.Sync()
		receiver, err := ns.Client(t).NewReceiverForQueue("q", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		if err != nil {
			t.Fatal(err)
		}
		d.Until(t, "ReceiveMessages", func() error {
			ms, err := receiver.ReceiveMessages(context.Background(), 1, nil)
			if err == nil && len(ms) != 1 {
				err = errors.New("no message")
			}
			return err
		})
		if n := q.Counts().Active; n != 0 {
			t.Errorf("%d messages are left, want none", n)
		}
	})
}

func TestSendOnAFullDiskIsRefusedForItsQuota(t *testing.T) {
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		sender, err := ns.Client(t).NewSender("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		for cause, want := range map[error]string{
			queue.ErrNoRoom:    "amqp:resource-limit-exceeded",
			queue.ErrNotStored: "com.microsoft:server-busy",
		} {
			d.Fail(cause)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("m")}, nil)
			cancel()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("SendMessage while the disk says %q = %v, want %s", cause, err, want)
			}
		}
	})
}

func TestCommitOfATransactionIsHeldTogetherAndWaitsForTheDisk(t *testing.T) {
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		r.attach(1, amqp.RoleSender, "", func(a *amqp.Attach) { a.Target, a.Coordinator = nil, &amqp.Coordinator{} })
		declared, ok := r.transfer(1, 0, amqp.AppendValueSection(nil, (&amqp.Declare{}).Append(nil))).(*amqp.Declared)
		if !ok {
			t.Fatal("no transaction was declared")
		}
		for range 2 {
			r.deliveries++
			r.send(&amqp.Transfer{
				DeliveryID:    r.deliveries - 1,
				HasDeliveryID: true,
				DeliveryTag:   []byte{byte(r.deliveries)},
				State:         &amqp.TransactionalState{TxnID: declared.TxnID},
			}, amqp.AppendData(nil, []byte("x")))
			await[*amqp.Disposition](r)
		}
		d.Steps()
		d.Until(t, "the discharge", func() error {
			discharge := amqp.AppendValueSection(nil, (&amqp.Discharge{TxnID: declared.TxnID}).Append(nil))
			if st, accepted := r.transfer(1, 0, discharge).(amqp.Accepted); !accepted {
				return fmt.Errorf("answer %v", st)
			}
			return nil
		})
		if alone, held := d.Steps(); alone != 0 || held != 2 {
			t.Errorf("the commit takes %d steps alone and %d held together, want none and 2", alone, held)
		}
	})
}

// A message that reaches several queues reaches the disk in one piece: the copies of a topic with
// the end of the original, and so with a forward.
func TestFanOutAndForwardAreHeldTogether(t *testing.T) {
	configure := func(c *broker.Config) {
		c.Queues = append(c.Queues, broker.QueueConfig{Name: "from", ForwardTo: "q"})
		c.Topics = []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "t"},
			Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "a"}},
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "b", ForwardTo: "q"}},
			},
		}}
	}
	onSlowDisk(t, configure, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		for target, want := range map[string]struct{ alone, held int }{
			"from": {2, 2}, // it came, and was taken | it came to q, and is gone here
			"t":    {2, 6}, // the same | both copies; b's was taken, came to q, and is gone there; and is gone here
		} {
			e, err := ns.Broker.Default().Entity(target)
			if err != nil {
				t.Fatal(err)
			}
			d.Steps()
			if refusal := e.Send([]byte("\x00\x53\x75\xa0\x01m")); refusal != nil {
				t.Fatal(refusal)
			}
			if alone, held := d.Steps(); alone != want.alone || held != want.held {
				t.Errorf("a send to %s takes %d steps alone and %d held together, want %d and %d", target, alone, held, want.alone, want.held)
			}
		}
	})
}
