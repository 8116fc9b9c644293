// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
)

// forwards makes a Forward with one handling for all entities, whose monitor queue is "due".
func forwards(t *testing.T, ns *brokertest.Namespace, h Handling) *Forward {
	t.Helper()
	links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: ns.Dial, Tokens: link.SAS("k", "c2VjcmV0")})
	t.Cleanup(func() { _ = links.Close() })
	f, err := NewForward(ForwardConfig{
		Links: links, MonitorQueue: "due",
		Handling: func(string) Handling { return h },
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// deadLettered sends m to the queue orders, waits until it is a dead letter, and has a Forward with
// the handling take its event.
func deadLettered(t *testing.T, h Handling, m *azservicebus.Message) (*azservicebus.Client, error) {
	t.Helper()
	ns := brokertest.New(t, func(c *broker.Config) {
		c.Expiry, c.AutoCreate = queue.Eager, false
		c.Queues = []broker.QueueConfig{{Name: "orders", DeadLetteringOnMessageExpiration: true}, {Name: "replies"}, {Name: "next"}, {Name: "due"}}
	})
	f := forwards(t, ns, h)
	e := someEvent()
	e.Data.Entity, e.Data.SequenceNumber = "orders", 1
	client := ns.Client(t)
	if m != nil {
		m.TimeToLive = to.Ptr(time.Second)
		sender, err := client.NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.SendMessage(t.Context(), m, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
	}
	return client, f.Alert(t.Context(), e)
}

func TestTheSenderOfAMissedMessageGetsItsEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		m       azservicebus.Message
		want    string // correlation id
		session string
	}{
		"by the message id":         {azservicebus.Message{MessageID: to.Ptr("m-1"), ReplyTo: to.Ptr("replies")}, "m-1", ""},
		"by the correlation id":     {azservicebus.Message{CorrelationID: to.Ptr("c"), ReplyTo: to.Ptr("sb://overdue.test/replies")}, "c", ""},
		"in the session of replies": {azservicebus.Message{MessageID: to.Ptr("m-1"), ReplyTo: to.Ptr("replies"), ReplyToSessionID: to.Ptr("s")}, "m-1", "s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := deadLettered(t, Handling{Report: true}, &tc.m)
				if err != nil {
					t.Fatal(err)
				}
				r, err := client.NewReceiverForQueue("replies", nil)
				if err != nil {
					t.Fatal(err)
				}
				ms, err := r.ReceiveMessages(t.Context(), 1, nil)
				if err != nil || len(ms) != 1 {
					t.Fatalf("ReceiveMessages = %d, %v, want one report", len(ms), err)
				}
				var e Event
				if err := json.Unmarshal(ms[0].Body, &e); err != nil || e.Type != TypeMissed {
					t.Errorf("the report is %q, %v, want a missed deadline", ms[0].Body, err)
				}
				if got := ms[0].CorrelationID; got == nil || *got != tc.want {
					t.Errorf("correlation id = %v, want %s", got, tc.want)
				}
				if got := ms[0].SessionID; (got == nil) != (tc.session == "") || got != nil && *got != tc.session {
					t.Errorf("session = %v, want %q", got, tc.session)
				}
			})
		})
	}
}

// The sender chooses its reply-to. A wrong one must not hold up the reports of others.
func TestAReplyToThatDoesNotExistIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := deadLettered(t, Handling{Report: true}, &azservicebus.Message{ReplyTo: to.Ptr("nowhere")}); err != nil {
			t.Errorf("Alert = %v, want nil", err)
		}
	})
}

func TestADeadLetterThatIsGoneIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := deadLettered(t, Handling{ForwardTo: "next"}, nil); err != nil {
			t.Errorf("Alert = %v, want nil", err)
		}
	})
}

func TestATargetThatDoesNotExistIsAnErrorThatNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := deadLettered(t, Handling{ForwardTo: "nowhere"}, &azservicebus.Message{Body: []byte("x")})
		if err == nil || !strings.Contains(err.Error(), "alert: forward to nowhere: ") {
			t.Errorf("Alert = %v, want an error that names nowhere", err)
		}
	})
}

func TestForwardLeavesOtherEventsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := deadLettered(t, Handling{}, nil); err != nil {
			t.Errorf("Alert of an entity without handling = %v", err)
		}
	})
	f := &Forward{}
	if err := f.Alert(t.Context(), Event{Type: TypeNear}); err != nil || f.Name() != "forward" {
		t.Errorf("Alert of a warning by %s = %v", f.Name(), err)
	}
	if _, err := NewForward(ForwardConfig{}); err == nil {
		t.Error("NewForward without links = nil")
	}
}

func TestAnEventForAMissingQueueIsUndeliverable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) { c.AutoCreate, c.Queues = false, []broker.QueueConfig{{Name: "events"}} })
		a := NewServiceBus("bus", ns.Links(t), "nowhere")
		e := someEvent()
		e.Data.SessionID, e.Data.CorrelationID = "s", "c"
		err := a.Alert(t.Context(), e)
		if link.Condition(err) != link.ConditionNotFound || a.Name() != "bus" {
			t.Errorf("Alert by %s = %v, want that the queue does not exist", a.Name(), err)
		}
	})
}

// Anyone who dead-letters a message chooses the type of the reason, and the SDK panics if that is no
// string.
func TestADeadLetterWhoseReasonIsNoStringIsForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) {
			c.Queues = []broker.QueueConfig{{Name: "orders"}, {Name: "next"}}
		})
		sender, err := ns.Client(t).NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.SendMessage(t.Context(), &azservicebus.Message{ApplicationProperties: map[string]any{"kind": "coffee"}}, nil); err != nil {
			t.Fatal(err)
		}
		q, _ := ns.Broker.Queue("orders")
		c := q.NewConsumer(queue.PeekLock)
		defer c.Close()
		c.AddCredit(1)
		ds, _, _ := c.Take(nil)
		errs := q.Settle(queue.Settlement{Outcome: queue.DeadLetter, Properties: []queue.Property{
			{Key: "DeadLetterReason", Value: int32(7)}, {Key: "DeadLetterErrorDescription", Value: true},
			{Key: "site", Value: amqp.Described{Descriptor: amqp.Symbol("com.microsoft:uri"), Value: "http://example.com"}},
		}}, ds[0].LockToken)
		if errs != nil {
			t.Fatal(errs)
		}
		e := someEvent()
		e.Data.Entity, e.Data.SequenceNumber = "orders", 1
		if err := forwards(t, ns, Handling{ForwardTo: "next"}).Alert(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		next, err := ns.Client(t).NewReceiverForQueue("next", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := next.PeekMessages(t.Context(), 10, nil)
		if err != nil || len(ms) != 1 || ms[0].ApplicationProperties["kind"] != "coffee" || ms[0].ApplicationProperties["site"] == nil {
			t.Errorf("forwarded: %v, %v, want one copy with its properties", ms, err)
		}
	})
}
