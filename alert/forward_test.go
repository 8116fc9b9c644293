// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// A copy states no deadline, however its message stated one: it was late already.
func TestAForwardedCopyStatesNoDeadline(t *testing.T) {
	stated := []string{"overdue-deadline", "overdue-within", "overdue-complete-within"}
	m := &amqp.Message{Properties: &amqp.MessageProperties{}, ApplicationProperties: map[string]any{"kind": "coffee"}}
	for _, name := range stated {
		m.ApplicationProperties[name] = "1s"
	}
	got := copyOf(m, someEvent()).ApplicationProperties
	for _, name := range stated {
		if v, ok := got[name]; ok {
			t.Errorf("the copy has %s = %v, want none", name, v)
		}
	}
	if got["kind"] != "coffee" {
		t.Errorf("the copy has kind = %v, want what the message has", got["kind"])
	}
	if m.ApplicationProperties[stated[0]] != "1s" {
		t.Error("the message itself has lost its properties")
	}
}

// expiringQueue makes the queue orders, which dead-letters what expires, and the queue next.
func expiringQueue(t *testing.T) (*brokertest.Namespace, *azservicebus.Sender) {
	t.Helper()
	ns := brokertest.New(t, func(c *broker.Config) {
		c.Expiry = queue.Eager
		c.Queues = []broker.QueueConfig{{Name: "orders", DeadLetteringOnMessageExpiration: true}, {Name: "next"}}
	})
	sender, err := ns.Client(t).NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	return ns, sender
}

// The events of dead letters come in any order. One that is behind more others than are received at
// a time is completed when those are.
func TestADeadLetterBehindManyOthersIsCompletedAfterThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns, sender := expiringQueue(t)
		f := forwards(t, ns, Handling{ForwardTo: "next"})
		life, n := time.Second, int64(searchDepth+50)
		for range n {
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{TimeToLive: &life}, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		alert := func(number int64) {
			e := someEvent()
			e.ID, e.Data.Entity, e.Data.SequenceNumber = fmt.Sprint("event-", number), "orders", number
			if err := f.Alert(t.Context(), e); err != nil {
				t.Error(err)
			}
		}
		alert(n)
		time.Sleep(searchWait / 2) // the next events come when its round is long over
		for number := n - 1; number > 0; number-- {
			alert(number)
		}
		time.Sleep(time.Minute)
		q, _ := ns.Broker.Queue("orders")
		if left := q.Counts().DeadLetter; left != 0 {
			t.Errorf("dead letters = %d, want 0: all were forwarded", left)
		}
	})
}
