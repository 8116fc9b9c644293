// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
)

// These cases look behind the protocol, or need a broker of a special kind. What
// every namespace does is in exercise.Run.

// bubble runs f on fake time with a namespace of its own.
func bubble(t *testing.T, configure func(*broker.Config), f func(t *testing.T, ns *brokertest.Namespace)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if configure == nil {
			configure = func(*broker.Config) {}
		}
		f(t, brokertest.New(t, configure))
	})
}

// session opens a session of go-amqp.
func session(t *testing.T, ns *brokertest.Namespace) *amqp.Session {
	t.Helper()
	nc, err := ns.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := amqp.NewConn(t.Context(), nc, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // a test may have cut it
	s, err := c.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantCondition checks the condition of an AMQP error.
func wantCondition(t *testing.T, what string, err error, want amqp.ErrCond) {
	t.Helper()
	var e *amqp.Error
	if !errors.As(err, &e) || e.Condition != want {
		t.Errorf("%s = %v, want condition %s", what, err, want)
	}
}

func send(t *testing.T, c *azservicebus.Client, name string, m *azservicebus.Message) error {
	t.Helper()
	s, err := c.NewSender(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	return s.SendMessage(ctx, m, nil)
}

func counts(t *testing.T, ns *brokertest.Namespace, name string) queue.Counts {
	t.Helper()
	q, ok := ns.Broker.Queue(name)
	if !ok {
		t.Fatalf("queue %s does not exist", name)
	}
	c := q.Counts()
	c.Size = 0
	return c
}

func queueNames(ns *brokertest.Namespace) (names []string) {
	for _, q := range ns.Broker.Default().Queues() {
		names = append(names, q.Config.Name)
	}
	return names
}

func TestAutoCreateMakesAQueueWhenItIsUsed(t *testing.T) {
	bubble(t, func(c *broker.Config) { c.MaxEntities = 3 }, func(t *testing.T, ns *brokertest.Namespace) {
		s := session(t, ns)
		if _, err := s.NewSender(t.Context(), "asked/$management", nil); err != nil {
			t.Fatalf("a link to $management of a queue to come: %v", err)
		}
		if names := queueNames(ns); len(names) != 0 {
			t.Errorf("queues %q exist, want none: nobody has used one", names)
		}
		for _, name := range []string{"sent", "SENT"} {
			if _, err := s.NewSender(t.Context(), name, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.NewReceiver(t.Context(), "dead/$DeadLetterQueue", nil); err != nil {
			t.Fatal(err)
		}
		sender, err := ns.Client(t).NewSender("sent", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sender.ScheduleMessages(t.Context(), []*azservicebus.Message{{}}, time.Now().Add(time.Hour), nil); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(queueNames(ns)), "[dead sent]"; got != want {
			t.Errorf("queues %s exist, want %s", got, want)
		}
		for _, name := range []string{"bad name", "$what", "t/Subscriptions/s", "q/$management/x"} {
			_, err := s.NewSender(t.Context(), name, nil)
			wantCondition(t, "a sender to "+name, err, amqp.ErrCondNotFound)
		}
		if _, err := s.NewSender(t.Context(), "third", nil); err != nil {
			t.Fatal(err)
		}
		_, err = s.NewSender(t.Context(), "fourth", nil)
		wantCondition(t, "a sender to one queue too many", err, amqp.ErrCondResourceLimitExceeded)
	})
}

func TestLazyExpiryShowsInTheCountsUntilAReceive(t *testing.T) {
	for expiry, want := range map[queue.Expiry]queue.Counts{
		queue.Lazy:     {Active: 2},
		queue.LazyHead: {Active: 2},
		queue.Eager:    {DeadLetter: 2},
	} {
		bubble(t, func(c *broker.Config) {
			c.Expiry = expiry
			c.AutoCreateConfig.DeadLetteringOnMessageExpiration = true
		}, func(t *testing.T, ns *brokertest.Namespace) {
			client := ns.Client(t)
			ttl := time.Second
			for range 2 {
				if err := send(t, client, "q", &azservicebus.Message{TimeToLive: &ttl}); err != nil {
					t.Fatal(err)
				}
			}
			r, err := client.NewReceiverForQueue("q", nil)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if ms, err := r.PeekMessages(t.Context(), 10, nil); err != nil || len(ms) != want.Active {
				t.Errorf("expiry %d: peeked %d messages, %v; want %d", expiry, len(ms), err, want.Active)
			}
			if got := counts(t, ns, "q"); got != want {
				t.Errorf("expiry %d: counts before a receive = %+v, want %+v", expiry, got, want)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if ms, err := r.ReceiveMessages(ctx, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("expiry %d: received %d messages, %v", expiry, len(ms), err)
			}
			if got, want := counts(t, ns, "q"), (queue.Counts{DeadLetter: 2}); got != want {
				t.Errorf("expiry %d: counts after a receive = %+v, want %+v", expiry, got, want)
			}
		})
	}
}

func TestAFullQueueRefusesSends(t *testing.T) {
	bubble(t, func(c *broker.Config) { c.AutoCreateConfig.MaxSize = 4000 }, func(t *testing.T, ns *brokertest.Namespace) {
		client := ns.Client(t)
		if err := send(t, client, "q", &azservicebus.Message{Body: make([]byte, 2000)}); err != nil {
			t.Fatal(err)
		}
		err := send(t, client, "q", &azservicebus.Message{Body: make([]byte, 2000)})
		wantCondition(t, "SendMessage", err, amqp.ErrCondResourceLimitExceeded)
		if got := counts(t, ns, "q"); got != (queue.Counts{Active: 1}) {
			t.Errorf("counts = %+v, want the first message only", got)
		}
	})
}

// The link to $management takes what the namespace allows, which may be more.
func TestAMessageToScheduleIsNoLargerThanItsEntityAllows(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		if err := ns.Broker.AddQueue(broker.QueueConfig{Name: "q", MaxMessageSize: 2048}); err != nil {
			t.Fatal(err)
		}
		sender, err := ns.Client(t).NewSender("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		for size, want := range map[int]int{1000: 1, 2048: 0} {
			numbers, err := sender.ScheduleMessages(t.Context(), []*azservicebus.Message{{Body: make([]byte, size)}}, time.Now().Add(time.Hour), nil)
			if len(numbers) != want {
				t.Errorf("schedule of %d bytes = %d, %v, want %d scheduled", size, len(numbers), err, want)
			}
			if want == 0 && (err == nil || !strings.Contains(err.Error(), "2048 is the most")) {
				t.Errorf("schedule of %d bytes = %v, want an error that states the limit", size, err)
			}
		}
	})
}

func TestABatchWithABadMessageStoresNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		s, err := session(t, ns).NewSender(t.Context(), "q", nil)
		if err != nil {
			t.Fatal(err)
		}
		good, err := amqp.NewMessage([]byte("good")).MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		err = s.Send(t.Context(), &amqp.Message{Format: 0x80013700, Data: [][]byte{good, []byte("bad")}}, nil)
		wantCondition(t, "Send", err, amqp.ErrCondNotAllowed)
		if got := counts(t, ns, "q"); got != (queue.Counts{}) {
			t.Errorf("counts = %+v, want nothing", got)
		}
	})
}

func TestASessionReceiverIsRefused(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		client := ns.Client(t)
		_, err := client.AcceptSessionForQueue(t.Context(), "q", "s", nil)
		wantCondition(t, "AcceptSessionForQueue", err, amqp.ErrCondNotAllowed)
	})
}

func TestReceiveAndDeleteLosesOnlyWhatWasUnderWay(t *testing.T) {
	const messages, size = 100, 20_000
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		client := ns.Client(t)
		for range messages {
			if err := send(t, client, "q", &azservicebus.Message{Body: make([]byte, size)}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := session(t, ns).NewReceiver(t.Context(), "q", &amqp.ReceiverOptions{
			Credit: -1, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ns.Net.Stall(pipenet.ToDialer)
		if err := r.IssueCredit(messages); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // as much as the output of the connection takes is on its way
		ns.Net.Cut()
		synctest.Wait()
		left := counts(t, ns, "q").Active
		if lost := messages - left; lost == 0 || lost > messages/2 {
			t.Errorf("%d of %d messages were lost, want those in the output of the connection", lost, messages)
		}
		// None of the others is locked by the one who is gone.
		q, _ := ns.Broker.Queue("q")
		c := q.NewConsumer(queue.PeekLock)
		defer c.Close()
		c.AddCredit(messages)
		if ds, _, _ := c.Take(nil); len(ds) != left {
			t.Errorf("%d messages can be received, want %d", len(ds), left)
		}
	})
}

func TestRequestsWhoseResponsesNobodyReadsAreBounded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		s := session(t, ns)
		const address, replyTo = "q/$management", "reply"
		r, err := s.NewReceiver(t.Context(), address, &amqp.ReceiverOptions{TargetAddress: replyTo, Credit: -1})
		if err != nil {
			t.Fatal(err)
		}
		sender, err := s.NewSender(t.Context(), address, nil)
		if err != nil {
			t.Fatal(err)
		}
		request := func() *amqp.Message {
			return &amqp.Message{
				Properties:            &amqp.MessageProperties{MessageID: "id", ReplyTo: new(replyTo)},
				ApplicationProperties: map[string]any{"operation": "com.microsoft:peek-message", "pad": make([]byte, 200_000)},
				Value:                 map[string]any{"from-sequence-number": int64(0), "message-count": int32(1)},
			}
		}
		const requests = 40
		answers := make(chan error, requests)
		for range requests {
			go func() { answers <- sender.Send(t.Context(), request(), nil) }()
		}
		refused := 0
		for range requests {
			if err := <-answers; err != nil {
				wantCondition(t, "Send", err, "com.microsoft:server-busy")
				refused++
			}
		}
		if refused < requests/4 || refused > requests*3/4 {
			t.Errorf("%d of %d requests were refused, want those beyond 4 MiB", refused, requests)
		}
		// The others are answered as soon as there is credit.
		if err := r.IssueCredit(requests); err != nil {
			t.Fatal(err)
		}
		for range requests - refused {
			if _, err := r.Receive(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestARequestWithoutAWayBackIsRejected(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		s := session(t, ns)
		sender, err := s.NewSender(t.Context(), "q/$management", nil)
		if err != nil {
			t.Fatal(err)
		}
		request := &amqp.Message{
			Properties:            &amqp.MessageProperties{ReplyTo: new("nowhere")},
			ApplicationProperties: map[string]any{"operation": "com.microsoft:peek-message"},
		}
		wantCondition(t, "Send without a link for the response", sender.Send(t.Context(), request, nil), amqp.ErrCondNotFound)
	})
}

func TestAClockThatStepsMakesLocksLapse(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		client := ns.Client(t)
		if err := send(t, client, "q", &azservicebus.Message{}); err != nil {
			t.Fatal(err)
		}
		r, err := client.NewReceiverForQueue("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		for want := uint32(1); want <= 3; want++ {
			ms, err := r.ReceiveMessages(t.Context(), 1, nil)
			if err != nil || len(ms) != 1 || ms[0].DeliveryCount != want {
				t.Fatalf("received %d messages, %v; want one with delivery count %d", len(ms), err, want)
			}
			if got := ms[0].EnqueuedTime; time.Since(*got).Abs() > time.Minute {
				t.Errorf("enqueued %v, want about now", got)
			}
			ns.Broker.SetClockOffset(time.Duration(want) * time.Hour)
		}
	})
}

func TestShutdownEndsOpenLinks(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		s := session(t, ns)
		r, err := s.NewReceiver(t.Context(), "q", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := ns.Broker.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown = %v", err)
		}
		if _, err := r.Receive(ctx, nil); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Receive = %v, want the end of the connection", err)
		}
		if err := ns.Broker.AddQueue(broker.QueueConfig{Name: "late"}); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("AddQueue = %v, want ErrClosed", err)
		}
	})
}
