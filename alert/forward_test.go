// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"

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

// A caller that gives up and calls again while a message is being forwarded joins that: there is
// one copy.
func TestAMessageIsForwardedOnceIfAlertIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns, sender := expiringQueue(t)
		f := forwards(t, ns, Handling{ForwardTo: "next"})
		life := time.Second
		event := func(number int64) Event {
			e := someEvent()
			e.ID, e.Data.Entity, e.Data.SequenceNumber = fmt.Sprint("event-", number), "orders", number
			return e
		}
		for range 3 {
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{TimeToLive: &life}, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		if err := f.Alert(t.Context(), event(1)); err != nil { // its links are open from now on
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		ns.Net.Stall(pipenet.ToDialer) // answers wait on their way
		const asked = 3
		ended := make(chan error, 2*asked)
		ask := func(number int64, timeout time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			go func() { defer cancel(); ended <- f.Alert(ctx, event(number)) }()
			synctest.Wait()
		}
		ask(2, time.Hour) // which the other waits for
		for range asked {
			ask(3, time.Second)
			if err := <-ended; err == nil {
				t.Fatal("Alert = nil while nothing comes back, want that it gives up")
			}
		}
		for range asked {
			ask(3, time.Hour)
		}
		ns.Net.Resume(pipenet.ToDialer)
		for range asked + 1 {
			if err := <-ended; err != nil {
				t.Errorf("Alert = %v, want the event sent on", err)
			}
		}
		time.Sleep(time.Minute)
		var events []string
		r, err := ns.Client(t).NewReceiverForQueue("next", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.PeekMessages(t.Context(), 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ms {
			events = append(events, m.ApplicationProperties[propertyMissedEvent].(string))
		}
		if want := []string{"event-1", "event-2", "event-3"}; !slices.Equal(events, want) {
			t.Errorf("copies of %q, want of %q, one of each", events, want)
		}
	})
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
